"""The salted commitment to an artifact: hides the content, even a guessed one, and binds it."""

from __future__ import annotations

import hashlib
import hmac

from enclave.core.encoding import lp
from enclave.core.errors import SealedRefused

_TAG = b"doubleblind/commitment/v1"
_SIZE = 32


def compute_commitment(artifact: str, salt: bytes, manifest_digest: str) -> str:
    """SHA-256(lp(tag, artifact, salt, manifest digest)) as hex; salt: 32 secret random bytes."""
    digest = bytes.fromhex(manifest_digest)
    if len(salt) != _SIZE or len(digest) != _SIZE:
        raise ValueError("malformed commitment inputs")
    return hashlib.sha256(lp(_TAG, artifact.encode("ascii"), salt, digest)).hexdigest()


def verify_commitment(artifact: str, salt: bytes, manifest_digest: str, commitment: str) -> None:
    """Raise SealedRefused `commitment_mismatch` unless these inputs give `commitment`."""
    if not hmac.compare_digest(compute_commitment(artifact, salt, manifest_digest), commitment):
        raise SealedRefused(
            "commitment_mismatch",
            expected=f"the committed {artifact}, and the salt of its commitment",
            got="another manifest or salt",
        )
