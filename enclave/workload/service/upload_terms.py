"""Whether an index may be uploaded under a plan."""

from __future__ import annotations

from enclave.core.errors import UploadRefused
from enclave.core.plan_terms import ArtifactTerms
from enclave.core.sealed.index import SealedIndex
from enclave.wire.messages import SEGMENT_BYTES

# Tink's streaming format: a header in the first segment and a tag in each.
_HEADER_BYTES = 40
_TAG_BYTES = 16
# The manifest travels as stream 0: its digests and paths beside the files themselves.
_MANIFEST_BYTES = 64 * 1024
_MANIFEST_BYTES_PER_FILE = 1024


def refuse_other_index(index: SealedIndex, artifact: str, terms: ArtifactTerms) -> None:
    """Refuse an index that is not the planned artifact's, or that is too large for it.

    Raises UploadRefused: `upload_commitment_mismatch`, `upload_too_large`.
    """
    if (index.artifact, index.commitment) != (artifact, terms.commitment):
        raise UploadRefused(
            "upload_commitment_mismatch",
            expected=f"{artifact} {terms.commitment}",
            got=f"{index.artifact} {index.commitment}",
            hint="upload the directory whose commitment is in the plan",
        )
    files = len(index.streams) - 1
    if files > terms.max_files:
        raise _too_large(f"at most {terms.max_files} files", f"{files} files")
    contents = sum(plaintext_bytes(size) for size in index.streams[1:])
    if contents > terms.max_bytes:
        raise _too_large(f"at most {terms.max_bytes} bytes", f"{contents} bytes")
    manifest = plaintext_bytes(index.streams[0])
    allowed = _MANIFEST_BYTES + _MANIFEST_BYTES_PER_FILE * terms.max_files
    if manifest > allowed:
        raise _too_large(f"a manifest of at most {allowed} bytes", f"{manifest} bytes")


def plaintext_bytes(ciphertext_bytes: int) -> int:
    """Plaintext size of a stream; a size that no stream can have counts as it stands."""
    segments = -(-ciphertext_bytes // SEGMENT_BYTES)
    return max(ciphertext_bytes - _HEADER_BYTES - _TAG_BYTES * segments, 0)


def _too_large(expected: str, got: str) -> UploadRefused:
    return UploadRefused(
        "upload_too_large", expected=expected, got=got, hint="the plan sets these bounds"
    )
