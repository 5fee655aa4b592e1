"""Sealing a folder: each file a stream under one fresh key, in constant memory.

The calling thread reads and digests segment after segment; threads encrypt and
write them.  Key and salt are returned and never written here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from blake3 import blake3

from enclave.clients.party.sealed_output import SealedOutput, open_output
from enclave.clients.party.source_folder import SourceFile, SourceFolder, changed
from enclave.core.sealed.commitment import compute_commitment
from enclave.core.sealed.index import SealedIndex
from enclave.core.sealed.manifest import (
    ArtifactLimits,
    Manifest,
    ManifestFile,
    parse_manifest,
)
from enclave.core.sealed.stream import (
    KEY_BYTES,
    PREFIX_BYTES,
    SALT_BYTES,
    SEGMENT_BYTES,
    Segment,
    StreamCipher,
    StreamLayout,
    make_header,
)
from enclave.core.vocabulary import ARTIFACTS

Progress = Callable[[int, int], None]
"""Called with (bytes read, bytes of all files) from the calling thread."""

Randomness = Callable[[int], bytes]

_DEFAULT_LIMITS: Final = ArtifactLimits()
_MAX_THREADS: Final = 4
_MAX_UNSYNCED: Final = 64


@dataclass(frozen=True)
class SealedArtifact:
    """What sealing made. key and salt (32 bytes each) open and prove it: secret.

    So is the manifest: its digests would confirm a guessed content.
    """

    index: SealedIndex
    key: bytes = field(repr=False)
    salt: bytes = field(repr=False)
    commitment: str
    manifest: Manifest = field(repr=False)


def seal_artifact(
    source: Path,
    destination: Path,
    artifact: str,
    *,
    randomness: Randomness = os.urandom,
    progress: Progress | None = None,
    before_publish: Callable[[SealedArtifact], None] | None = None,
    limits: ArtifactLimits = _DEFAULT_LIMITS,
    threads: int | None = None,
) -> SealedArtifact:
    """Seal the folder `source` to the new directory `destination`.

    `before_publish` is called when all is durable but not yet under its name: a place to
    keep the key.  Raises what `SourceFolder` and `open_output` raise, and SealedRefused
    `source_changed`; then nothing is left under either name.
    """
    if artifact not in ARTIFACTS:
        raise ValueError(f"no artifact {artifact!r}")
    folder = SourceFolder(source, artifact, limits)
    try:
        with open_output(destination) as output:
            key, salt = randomness(KEY_BYTES), randomness(SALT_BYTES)
            workers = threads or min(os.cpu_count() or 1, _MAX_THREADS)
            with _Sealer(output, key, randomness, workers) as sealer:
                sealed = _seal_all(folder, artifact, salt, sealer, progress)
            folder.refuse_other_listing()
            output.write_index(sealed.index.to_bytes())
            if before_publish is not None:
                before_publish(sealed)
            output.publish()
    finally:
        folder.close()
    return sealed


def commit_folder(
    source: Path, artifact: str, salt: bytes, *, limits: ArtifactLimits = _DEFAULT_LIMITS
) -> str:
    """The commitment (hex) that sealing `source` under this salt has: compares code in hand.

    Raises what `SourceFolder` raises, and SealedRefused `source_changed`.
    """
    folder = SourceFolder(source, artifact, limits)
    buffer = memoryview(bytearray(SEGMENT_BYTES))
    files = []
    try:
        for file in folder.files:
            digest = blake3()
            with folder.open_file(file) as descriptor:
                for start in range(0, file.size, SEGMENT_BYTES):
                    part = buffer[: min(SEGMENT_BYTES, file.size - start)]
                    _read_exactly(file, descriptor, part, start)
                    digest.update(part)
            files.append(ManifestFile(file.path, file.size, digest.hexdigest()))
        folder.refuse_other_listing()
    finally:
        folder.close()
    return compute_commitment(artifact, salt, Manifest(artifact, tuple(files)).digest)


def _seal_all(
    folder: SourceFolder,
    artifact: str,
    salt: bytes,
    sealer: _Sealer,
    progress: Progress | None,
) -> SealedArtifact:
    files: list[ManifestFile] = []
    total, done = folder.total_bytes, 0
    for stream, file in enumerate(folder.files, 1):
        digest = blake3()
        with folder.open_file(file) as descriptor:
            for segment, plaintext in sealer.seal_stream(stream, file.size):
                _read_exactly(file, descriptor, plaintext, segment.plaintext_offset)
                digest.update(plaintext)
                done += segment.plaintext_size
                if progress is not None:
                    progress(done, total)
        files.append(ManifestFile(file.path, file.size, digest.hexdigest()))
    manifest = Manifest(artifact, tuple(files))
    data = manifest.to_bytes()
    # What the enclave will refuse is refused here, before anything is uploaded.
    parse_manifest(data, total, len(files))
    for segment, plaintext in sealer.seal_stream(0, len(data)):
        start = segment.plaintext_offset
        plaintext[:] = data[start : start + segment.plaintext_size]
    sealer.finish()
    sizes = [len(data), *(file.size for file in files)]
    streams = tuple(StreamLayout(size).ciphertext_size for size in sizes)
    commitment = compute_commitment(artifact, salt, manifest.digest)
    index = SealedIndex(artifact, commitment, streams)
    return SealedArtifact(index, sealer.key, salt, commitment, manifest)


class _Slot:
    """Two segment-sized buffers, used again and again."""

    def __init__(self) -> None:
        self.plaintext = memoryview(bytearray(SEGMENT_BYTES))
        self.ciphertext = memoryview(bytearray(SEGMENT_BYTES))


class _Sealer:
    """Encrypts and writes segments on threads, with one slot more than threads."""

    def __init__(
        self, output: SealedOutput, key: bytes, randomness: Randomness, threads: int
    ) -> None:
        self._output = output
        self.key = key
        self._randomness = randomness
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="seal")
        self._slots = [_Slot() for _ in range(threads + 1)]
        self._free: SimpleQueue[_Slot] = SimpleQueue()
        for slot in self._slots:
            self._free.put(slot)
        self._unsynced: list[Future[None]] = []

    def __enter__(self) -> _Sealer:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=False)
        for slot in self._slots:
            slot.plaintext[:] = bytes(SEGMENT_BYTES)

    def seal_stream(self, stream: int, size: int) -> Iterator[tuple[Segment, memoryview]]:
        """Yields each segment with the buffer that the caller fills with its plaintext."""
        header = make_header(self._randomness(SALT_BYTES), self._randomness(PREFIX_BYTES))
        cipher, layout = StreamCipher(self.key, header, stream), StreamLayout(size)
        descriptor = self._output.create_stream(stream)
        writing: list[Future[None]] = []
        try:
            self._output.write(descriptor, memoryview(header), 0)
            for number in range(layout.segments):
                segment = layout.segment(number)
                slot = self._free.get()
                try:
                    yield segment, slot.plaintext[: segment.plaintext_size]
                except BaseException:
                    self._free.put(slot)
                    raise
                future = self._pool.submit(self._write, cipher, segment, slot, descriptor)
                writing = [*_unfinished(writing), future]
            _wait(writing)
        except BaseException:
            for future in writing:
                future.exception()
            os.close(descriptor)
            raise
        self._unsynced.append(self._pool.submit(self._output.sync_and_close, descriptor))
        if len(self._unsynced) >= _MAX_UNSYNCED:
            self.finish()

    def finish(self) -> None:
        """Wait until every stream is durable."""
        unsynced, self._unsynced = self._unsynced, []
        _wait(unsynced)

    def _write(self, cipher: StreamCipher, segment: Segment, slot: _Slot, descriptor: int) -> None:
        try:
            ciphertext = slot.ciphertext[: segment.ciphertext_size]
            cipher.seal_into(segment, slot.plaintext[: segment.plaintext_size], ciphertext)
            self._output.write(descriptor, ciphertext, segment.ciphertext_offset)
        finally:
            self._free.put(slot)


def _unfinished(futures: list[Future[None]]) -> list[Future[None]]:
    """Those still at work; raises what a finished one raised."""
    waiting = [future for future in futures if not future.done()]
    _wait([future for future in futures if future.done()])
    return waiting


def _wait(futures: list[Future[None]]) -> None:
    for future in futures:
        future.result()


def _read_exactly(file: SourceFile, descriptor: int, part: memoryview, offset: int) -> None:
    while part:
        count = os.preadv(descriptor, [part], offset)
        if count == 0:
            raise changed(file.path)
        part = part[count:]
        offset += count
