"""From raw to verified evidence: signatures, chains, revocation, time. Pure, offline."""

from attestation.parse.bundle import parse_evidence_bundle
from attestation.parse.trust_roots import parse_trust_roots
from attestation.types.evidence import TrustRoots
from attestation.types.result import VerifiedEvidence
from attestation.verify.evidence import VERIFIABLE_KINDS, verify_evidence

__all__ = [
    "VERIFIABLE_KINDS",
    "TrustRoots",
    "VerifiedEvidence",
    "parse_evidence_bundle",
    "parse_trust_roots",
    "verify_evidence",
]
