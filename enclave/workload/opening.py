"""Opening a sealed artifact into protected memory, or nothing of it.

Order: index against the plan's commitment; manifest decrypted, its commitment, its
bounds; index sizes against the manifest; then every file, each digest; read-only last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from enclave.core.canonical import digest_bytes
from enclave.core.errors import IsolationRefused, SealedRefused
from enclave.core.sealed.commitment import verify_commitment
from enclave.core.sealed.index import refuse_other_manifest
from enclave.core.sealed.manifest import (
    Manifest,
    parse_manifest,
    refuse_file_count,
    refuse_total_size,
)
from enclave.core.sealed.stream import HEADER_BYTES, ByteBuffer, StreamCipher
from enclave.workload.memory.protected import ProtectedMemory
from enclave.workload.opening_streams import StreamOpener, StreamTask, read_exactly, refuse_size
from enclave.workload.segment_source import SegmentSource


class Bounds(Protocol):
    """What an artifact may have at most; the plan's terms are such bounds."""

    @property
    def max_bytes(self) -> int: ...

    @property
    def max_files(self) -> int: ...


@dataclass(frozen=True)
class OpenedFile:
    """One file in protected memory.

    fd: read-only, owned by the memory until it is wiped; other users may read it
    through `/proc/self/fd/N`.
    """

    path: str
    size: int
    fd: int


@dataclass(frozen=True)
class OpenedArtifact:
    """The files, ordered by path, and what they were verified against (hex)."""

    files: tuple[OpenedFile, ...]
    manifest_digest: str
    commitment: str


def open_artifact(  # noqa: PLR0917 - each is named in the contract of a session
    ciphertexts: SegmentSource,
    key: ByteBuffer,
    salt: bytes,
    commitment: str,
    memory: ProtectedMemory,
    limits: Bounds,
    threads: int,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> OpenedArtifact:
    """Open the committed artifact with `threads` threads.

    key: 32 bytes, salt: 32 bytes, commitment: hex from the plan.  `progress(done_bytes,
    total_bytes)` is called from the calling thread.  On any failure what was written is
    wiped and nothing is returned.

    Raises SealedRefused: `commitment_mismatch`, `segment_invalid`, `stream_truncated`,
    `stream_trailing`, `stream_missing`, `manifest_mismatch`, `manifest_...`, `index_...`,
    `artifact_too_large`, `artifact_too_many_files`, `file_digest_mismatch`, `memory_...`;
    ModelRefused `model_pickle`, `model_file_kind`; DocumentRefused for the manifest.
    """
    if threads < 1:
        raise ValueError("at least one thread")
    manifest = _open_manifest(ciphertexts, key, salt, commitment, limits)
    names: list[str] = []
    try:
        tasks: list[StreamTask] = []
        for stream, file in enumerate(manifest.files, 1):
            name = f"{manifest.artifact}-{stream:08d}"
            destination = memory.create(name, file.size)
            names.append(name)
            tasks.append(StreamTask(stream, file, destination))
        StreamOpener(ciphertexts, key, tasks, progress).open_all(threads)
        files = tuple(_finish(task) for task in tasks)
    except BaseException:
        _discard(memory, names)
        raise
    return OpenedArtifact(files, manifest.digest, commitment)


def _open_manifest(
    ciphertexts: SegmentSource, key: ByteBuffer, salt: bytes, commitment: str, limits: Bounds
) -> Manifest:
    index = ciphertexts.index
    if index.commitment != commitment:
        raise SealedRefused("commitment_mismatch", expected=commitment, got=index.commitment)
    refuse_file_count(len(index.streams) - 1, limits.max_files)
    layouts = [index.layout(stream) for stream in range(len(index.streams))]
    refuse_total_size(sum(layout.plaintext_size for layout in layouts[1:]), limits.max_bytes)
    layout = layouts[0]
    descriptor = ciphertexts.descriptor(0)
    refuse_size(descriptor, layout, 0)
    data = memoryview(bytearray(layout.ciphertext_size))
    read_exactly(descriptor, data, 0, 0)
    plaintext = memoryview(bytearray(layout.plaintext_size))
    cipher = StreamCipher(key, bytes(data[:HEADER_BYTES]), 0)
    for number in range(layout.segments):
        segment = layout.segment(number)
        start, target = segment.ciphertext_offset, segment.plaintext_offset
        cipher.open_into(
            segment,
            data[start : start + segment.ciphertext_size],
            plaintext[target : target + segment.plaintext_size],
        )
    manifest_bytes = bytes(plaintext)
    # Before parsing: the parser sees nothing but what the owner committed to.
    verify_commitment(index.artifact, salt, digest_bytes(manifest_bytes), commitment)
    manifest = parse_manifest(manifest_bytes, limits.max_bytes, limits.max_files)
    refuse_other_manifest(index, manifest)
    return manifest


def _finish(task: StreamTask) -> OpenedFile:
    return OpenedFile(task.file.path, task.file.size, task.destination.seal_read_only())


def _discard(memory: ProtectedMemory, names: list[str]) -> None:
    """Wipe what was written; a file that does not wipe outweighs the reason for wiping."""
    failed: IsolationRefused | None = None
    for name in names:
        try:
            memory.discard(name)
        except IsolationRefused as refusal:
            failed = refusal
    if failed is not None:
        raise failed
