"""Artifacts to attack: sealed by the real sealer, or by hand by an owner who holds the key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

from enclave.clients.party.sealing import seal_artifact
from enclave.core.canonical import digest_bytes, print_canonical
from enclave.core.sealed import ArtifactLimits, SealedIndex, compute_commitment
from enclave.core.sealed.stream import StreamCipher, StreamLayout, make_header
from enclave.core.vocabulary import MANIFEST_TYPE
from enclave.workload.memory.memfd import MemfdMemory
from enclave.workload.memory.protected import ProtectedMemory
from enclave.workload.opening import OpenedArtifact, open_artifact
from enclave.workload.segment_source import SealedDirectory

FIRST = 1024 * 1024 - 40 - 16
"""Plaintext bytes of the first segment."""
NEXT = 1024 * 1024 - 16
"""Plaintext bytes of a following segment."""

LIMITS = ArtifactLimits()

FOUR_FILES = {
    "a.bin": os.urandom(FIRST + 2 * NEXT + 100),
    "b.bin": os.urandom(FIRST + 2 * NEXT + 100),
    "c.txt": b"short",
    "d.txt": b"",
}
"""Streams 1 to 4; the first two have four segments each and the same size."""


@dataclass
class Sealed:
    """A sealed directory and what opens it."""

    directory: Path
    key: bytes
    salt: bytes
    commitment: str

    def open(
        self,
        memory: ProtectedMemory | None = None,
        *,
        limits: ArtifactLimits = LIMITS,
        threads: int = 2,
        **changed: Any,
    ) -> OpenedArtifact:
        wanted = {"key": self.key, "salt": self.salt, "commitment": self.commitment, **changed}
        with SealedDirectory(self.directory) as source:
            return open_artifact(
                source,
                wanted["key"],
                wanted["salt"],
                wanted["commitment"],
                memory if memory is not None else MemfdMemory(),
                limits,
                threads,
            )

    def stream(self, number: int) -> Path:
        return self.directory / f"{number:08d}.sealed"


def write_tree(folder: Path, files: Mapping[str, bytes]) -> Path:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def seal_tree(place: Path, files: Mapping[str, bytes], artifact: str = "suite") -> Sealed:
    """Write files, seal them."""
    source = write_tree(place / "source", files)
    sealed = seal_artifact(source, place / "sealed", artifact)
    return Sealed(place / "sealed", sealed.key, sealed.salt, sealed.commitment)


def read_opened(opened: OpenedArtifact) -> dict[str, bytes]:
    return {file.path: os.pread(file.fd, file.size + 1, 0) for file in opened.files}


def manifest_entry(path: str, content: bytes) -> dict[str, Any]:
    return {"path": path, "size": len(content), "blake3": blake3(content).hexdigest()}


def craft(
    place: Path,
    entries: list[dict[str, Any]],
    contents: list[bytes],
    *,
    artifact: str = "suite",
    index_artifact: str | None = None,
    manifest: bytes | None = None,
) -> Sealed:
    """What a hostile owner can make: everything authentic, nothing checked."""
    directory = place / "crafted"
    directory.mkdir(parents=True)
    key, salt = os.urandom(32), os.urandom(32)
    if manifest is None:
        manifest = print_canonical({"type": MANIFEST_TYPE, "artifact": artifact, "files": entries})
    sizes = []
    for stream, plaintext in enumerate([manifest, *contents]):
        ciphertext = seal_stream(key, stream, plaintext)
        (directory / f"{stream:08d}.sealed").write_bytes(ciphertext)
        sizes.append(len(ciphertext))
    named = index_artifact or artifact
    commitment = compute_commitment(named, salt, digest_bytes(manifest))
    index = SealedIndex(named, commitment, tuple(sizes))
    (directory / "index.json").write_bytes(index.to_bytes())
    return Sealed(directory, key, salt, commitment)


def seal_stream(key: bytes, stream: int, plaintext: bytes, header: bytes | None = None) -> bytes:
    """One stream in memory."""
    layout = StreamLayout(len(plaintext))
    header = header or make_header(os.urandom(32), os.urandom(7))
    cipher = StreamCipher(key, header, stream)
    out = bytearray(layout.ciphertext_size)
    out[:40] = header
    for number in range(layout.segments):
        segment = layout.segment(number)
        start, end = segment.ciphertext_offset, segment.plaintext_offset
        cipher.seal_into(
            segment,
            plaintext[end : end + segment.plaintext_size],
            memoryview(out)[start : start + segment.ciphertext_size],
        )
    return bytes(out)


def open_stream(key: bytes, stream: int, ciphertext: bytes) -> bytes:
    """One stream from memory."""
    segments = -(-len(ciphertext) // (1024 * 1024))
    layout = StreamLayout(len(ciphertext) - 40 - 16 * segments)
    cipher = StreamCipher(key, ciphertext[:40], stream)
    out = bytearray(layout.plaintext_size)
    for number in range(layout.segments):
        segment = layout.segment(number)
        start, end = segment.ciphertext_offset, segment.plaintext_offset
        cipher.open_into(
            segment,
            ciphertext[start : start + segment.ciphertext_size],
            memoryview(out)[end : end + segment.plaintext_size],
        )
    return bytes(out)


def rewrite_index(directory: Path, **changed: Any) -> None:
    """Rewrite index.json as the host may."""
    from enclave.core.sealed import parse_index

    index = parse_index((directory / "index.json").read_bytes())
    fields = {
        "artifact": index.artifact,
        "commitment": index.commitment,
        "streams": index.streams,
        **changed,
    }
    (directory / "index.json").write_bytes(SealedIndex(**fields).to_bytes())
