"""The manifest of an artifact: its files, sizes and BLAKE3 digests. Secret; sealed as stream 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from enclave.core.canonical import digest_bytes, parse_canonical, print_canonical
from enclave.core.errors import SealedRefused
from enclave.core.fields import Fields
from enclave.core.sealed.model_files import refuse_unsafe_model_file
from enclave.core.sealed.paths import MAX_PATH_BYTES, parse_path, refuse_colliding_paths
from enclave.core.sealed.stream import MAX_STREAM_BYTES
from enclave.core.vocabulary import ARTIFACTS, MANIFEST_TYPE

MAX_FILES = 10_000
MAX_MANIFEST_BYTES = 64 * 1024 + 1024 * MAX_FILES
_MAX_FILE_BYTES = MAX_STREAM_BYTES // 2


@dataclass(frozen=True)
class ArtifactLimits:
    """Upper bounds of an artifact: bytes of all files together, number of files."""

    max_bytes: int = _MAX_FILE_BYTES
    max_files: int = MAX_FILES


@dataclass(frozen=True)
class ManifestFile:
    """One file: relative path, size in bytes, BLAKE3-256 as hex."""

    path: str
    size: int
    blake3: str


@dataclass(frozen=True)
class Manifest:
    """The files of an artifact, ordered by path. File N (from 1) is stream N."""

    artifact: str
    files: tuple[ManifestFile, ...]
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", digest_bytes(self.to_bytes()))

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)

    def to_bytes(self) -> bytes:
        """The canonical bytes; `digest` is their SHA-256."""
        files: list[dict[str, Any]] = [
            {"path": file.path, "size": file.size, "blake3": file.blake3} for file in self.files
        ]
        return print_canonical({"type": MANIFEST_TYPE, "artifact": self.artifact, "files": files})


def parse_manifest(data: bytes, max_bytes: int, max_files: int) -> Manifest:
    """Parse and bound a manifest; refusals name files by number, for paths are secret.

    Raises SealedRefused (`artifact_too_many_files`, `artifact_too_large`, `artifact_empty`,
    `manifest_path_unsafe`, `manifest_duplicate_path`, `manifest_order`), ModelRefused
    (`model_pickle`, `model_file_kind`) for artifact "model", and DocumentRefused.
    """
    fields = Fields(parse_canonical(data, max_bytes=MAX_MANIFEST_BYTES), "manifest")
    fields.constant("type", MANIFEST_TYPE)
    artifact = fields.constant("artifact", *ARTIFACTS)
    entries = fields.array("files", 0, MAX_MANIFEST_BYTES)
    fields.done()
    refuse_file_count(len(entries), max_files)
    files = tuple(_parse_file(entry, number) for number, entry in enumerate(entries, 1))
    _refuse_disorder(files)
    for number, file in enumerate(files, 1):
        if artifact == "model":
            refuse_unsafe_model_file(file.path, f"file {number}")
    manifest = Manifest(artifact, files)
    refuse_total_size(manifest.total_bytes, max_bytes)
    return manifest


def refuse_file_count(count: int, max_files: int) -> None:
    """Refuse none (`artifact_empty`) or more files than allowed (`artifact_too_many_files`)."""
    if count < 1:
        raise SealedRefused("artifact_empty", expected="at least one file")
    allowed = min(max_files, MAX_FILES)
    if count > allowed:
        raise SealedRefused(
            "artifact_too_many_files", expected=f"at most {allowed} files", got=f"{count} files"
        )


def refuse_total_size(size: int, max_bytes: int) -> None:
    """Refuse more bytes than allowed (`artifact_too_large`)."""
    if size > max_bytes:
        raise SealedRefused(
            "artifact_too_large", expected=f"at most {max_bytes} bytes", got=f"{size} bytes"
        )


def _parse_file(entry: object, number: int) -> ManifestFile:
    place = f"file {number}"
    fields = Fields(entry, place)
    if isinstance(entry, Mapping) and isinstance(entry.get("path"), str):
        # Before `text`: every unsafe path has the same code.
        parse_path(entry["path"], place)
    file = ManifestFile(
        path=fields.text("path", max_length=MAX_PATH_BYTES),
        size=fields.integer("size", 0, _MAX_FILE_BYTES),
        blake3=fields.hex("blake3", 32),
    )
    fields.done()
    return file


def _refuse_disorder(files: Sequence[ManifestFile]) -> None:
    paths = [file.path for file in files]
    refuse_colliding_paths(paths)
    if paths != sorted(paths):
        raise SealedRefused("manifest_order", expected="files ordered by path")
