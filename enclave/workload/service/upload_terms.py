"""Whether an index may be uploaded under a plan."""

from __future__ import annotations

from enclave.core.errors import UploadRefused
from enclave.core.plan_terms import ArtifactTerms
from enclave.core.sealed.index import SealedIndex

# The manifest travels as stream 0: its paths and digests beside the files themselves.
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
    manifest, *files = (index.layout(n).plaintext_size for n in range(len(index.streams)))
    if len(files) > terms.max_files:
        raise _too_large(f"at most {terms.max_files} files", f"{len(files)} files")
    if sum(files) > terms.max_bytes:
        raise _too_large(f"at most {terms.max_bytes} bytes", f"{sum(files)} bytes")
    allowed = _MANIFEST_BYTES + _MANIFEST_BYTES_PER_FILE * terms.max_files
    if manifest > allowed:
        raise _too_large(f"a manifest of at most {allowed} bytes", f"{manifest} bytes")


def _too_large(expected: str, got: str) -> UploadRefused:
    return UploadRefused(
        "upload_too_large", expected=expected, got=got, hint="the plan sets these bounds"
    )
