"""Raw evidence on its way from an attester to a verifier (RATS, RFC 9334: Evidence).

Format: docs/spec/evidence.md.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass

import rfc8785

from attestation.errors import Finding, MalformedEvidence

EVIDENCE_TYPE = "https://w3id.org/double-blind/evidence/v1"
MAX_ITEMS = 32
"""One CPU report, one TPM quote, and GPUs and switches of the largest machines."""
MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_BUNDLE_BYTES = 2 * 1024 * 1024

SIMULATED = "simulated"
SEV_SNP = "sev-snp"
TDX = "tdx"
NVIDIA_GPU = "nvidia-gpu"
TPM2 = "tpm2"
NITRO = "nitro"
KINDS = (SIMULATED, SEV_SNP, TDX, NVIDIA_GPU, TPM2, NITRO)

_KIND = re.compile(r"[a-z][a-z0-9-]{0,31}\Z")


def _refuse(code: str, field: str, expected: str, got: str) -> MalformedEvidence:
    return MalformedEvidence(code, [Finding("evidence.format", field, expected, got[:80], code)])


@dataclass(frozen=True, slots=True)
class RawEvidence:
    """One piece of evidence, not yet parsed.

    `kind` says which parser must take `payload`; it is a claim of the sender.
    """

    kind: str
    payload: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or _KIND.match(self.kind) is None:
            raise _refuse("evidence_kind", "kind", "[a-z][a-z0-9-]*, at most 32", repr(self.kind))
        if not isinstance(self.payload, bytes):
            raise _refuse("evidence_payload", "payload", "bytes", type(self.payload).__name__)
        if not 1 <= len(self.payload) <= MAX_PAYLOAD_BYTES:
            raise _refuse(
                "evidence_size",
                "payload",
                f"1 to {MAX_PAYLOAD_BYTES} bytes",
                f"{len(self.payload)} bytes",
            )


@dataclass(frozen=True, slots=True)
class EvidenceBundle:
    """All evidence of one attester for one binding, in the attester's order.

    `to_bytes()` is the one spelling, `digest` its SHA-256. No item is there twice.
    """

    items: tuple[RawEvidence, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.items) <= MAX_ITEMS:
            raise _refuse(
                "evidence_count", "items", f"1 to {MAX_ITEMS} items", f"{len(self.items)} items"
            )
        if len(set(self.items)) != len(self.items):
            raise _refuse("evidence_duplicate", "items", "each item once", "the same item twice")
        # 4/3 for base64, and room for the names around it.
        size = sum(len(item.payload) for item in self.items)
        if size * 4 // 3 + 128 * (len(self.items) + 1) > MAX_BUNDLE_BYTES:
            raise _refuse(
                "evidence_size", "items", f"at most {MAX_BUNDLE_BYTES} bytes", f"{size} bytes"
            )

    def to_bytes(self) -> bytes:
        """RFC 8785 bytes of the bundle."""
        return rfc8785.dumps(
            {
                "type": EVIDENCE_TYPE,
                "items": [
                    {"kind": item.kind, "payload": base64.b64encode(item.payload).decode()}
                    for item in self.items
                ],
            }
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each item, in order."""
        return tuple(item.kind for item in self.items)

    @property
    def digest(self) -> str:
        """SHA-256 of `to_bytes()` as 64 lower hex digits."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class TrustRoots:
    """The roots that one verifier believes in, injected by it.

    `simulated`: PEM of one or more self-signed certificates of simulated
    attesters. A root is never read out of evidence and never chosen by name.
    """

    simulated: bytes = b""
