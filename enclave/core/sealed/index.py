"""The public index of a sealed artifact: commitment and ciphertext sizes, nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from enclave.core.canonical import parse_canonical, print_canonical
from enclave.core.errors import SealedRefused
from enclave.core.fields import Fields
from enclave.core.sealed.manifest import MAX_FILES, MAX_MANIFEST_BYTES, Manifest
from enclave.core.sealed.stream import StreamLayout, parse_ciphertext_size
from enclave.core.vocabulary import ARTIFACTS, DIGEST_SIZE, SEALED_ARTIFACT_TYPE

INDEX_NAME = "index.json"
MAX_INDEX_BYTES = 1024 + 16 * (MAX_FILES + 1)


@dataclass(frozen=True)
class SealedIndex:
    """artifact, salted commitment (hex) and the ciphertext bytes of each stream, stream 0 first."""

    artifact: str
    commitment: str
    streams: tuple[int, ...]

    def to_bytes(self) -> bytes:
        """The canonical bytes of index.json."""
        return print_canonical(
            {
                "type": SEALED_ARTIFACT_TYPE,
                "artifact": self.artifact,
                "commitment": self.commitment,
                "streams": list(self.streams),
            }
        )

    def layout(self, stream: int) -> StreamLayout:
        """The segments of one stream."""
        return parse_ciphertext_size(self.streams[stream], stream)


def stream_name(stream: int) -> str:
    """The file name of a stream in a sealed directory."""
    return f"{stream:08d}.sealed"


def parse_index(data: bytes) -> SealedIndex:
    """Parse index.json.

    Raises SealedRefused (`index_stream_size`, `index_stream_count`) and DocumentRefused.
    """
    fields = Fields(parse_canonical(data, max_bytes=MAX_INDEX_BYTES), "index")
    fields.constant("type", SEALED_ARTIFACT_TYPE)
    index = SealedIndex(
        artifact=fields.constant("artifact", *ARTIFACTS),
        commitment=fields.hex("commitment", DIGEST_SIZE),
        streams=tuple(fields.array("streams", 0, MAX_INDEX_BYTES)),
    )
    fields.done()
    if not 2 <= len(index.streams) <= MAX_FILES + 1:
        raise SealedRefused(
            "index_stream_count",
            expected=f"the manifest and 1 to {MAX_FILES} files",
            got=f"{len(index.streams)} streams",
        )
    for stream, size in enumerate(index.streams):
        if not isinstance(size, int) or isinstance(size, bool):
            raise SealedRefused("index_stream_size", expected="bytes", got=f"stream {stream}")
        parse_ciphertext_size(size, stream)
    if index.layout(0).plaintext_size > MAX_MANIFEST_BYTES:
        raise SealedRefused(
            "index_stream_size",
            expected=f"a manifest of at most {MAX_MANIFEST_BYTES} bytes",
            got=f"{index.layout(0).plaintext_size} bytes",
        )
    return index


def refuse_other_manifest(index: SealedIndex, manifest: Manifest) -> None:
    """Refuse an index that does not describe the streams of this manifest.

    Raises SealedRefused `manifest_mismatch` (artifact), `index_stream_count`,
    `index_size_mismatch`.
    """
    if index.artifact != manifest.artifact:
        raise SealedRefused("manifest_mismatch", expected=index.artifact, got=manifest.artifact)
    if len(index.streams) != len(manifest.files) + 1:
        raise SealedRefused(
            "index_stream_count",
            expected=f"{len(manifest.files) + 1} streams",
            got=f"{len(index.streams)} streams",
        )
    for stream, file in enumerate(manifest.files, 1):
        expected = StreamLayout(file.size).ciphertext_size
        if index.streams[stream] != expected:
            raise SealedRefused(
                "index_size_mismatch",
                expected=f"stream {stream}: {expected} bytes",
                got=f"{index.streams[stream]} bytes",
            )
