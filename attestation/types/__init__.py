"""The stages of attestation as types: a later stage accepts only what the earlier one made."""

from attestation.errors import Check, CheckState, Finding
from attestation.types.claims import (
    Claims,
    GpuClaims,
    SimulatedClaims,
    SnpClaims,
    SnpGuestPolicy,
    SnpPlatformInfo,
    SnpTcb,
)
from attestation.types.evidence import (
    EVIDENCE_TYPE,
    KINDS,
    MAX_BUNDLE_BYTES,
    MAX_ITEMS,
    MAX_PAYLOAD_BYTES,
    NITRO,
    NVIDIA_GPU,
    SEV_SNP,
    SIMULATED,
    TDX,
    TPM2,
    EvidenceBundle,
    RawEvidence,
    TrustRoots,
)
from attestation.types.result import AttestationResult, VerifiedEvidence

__all__ = [
    "EVIDENCE_TYPE",
    "KINDS",
    "MAX_BUNDLE_BYTES",
    "MAX_ITEMS",
    "MAX_PAYLOAD_BYTES",
    "NITRO",
    "NVIDIA_GPU",
    "SEV_SNP",
    "SIMULATED",
    "TDX",
    "TPM2",
    "AttestationResult",
    "Check",
    "CheckState",
    "Claims",
    "EvidenceBundle",
    "Finding",
    "GpuClaims",
    "RawEvidence",
    "SimulatedClaims",
    "SnpClaims",
    "SnpGuestPolicy",
    "SnpPlatformInfo",
    "SnpTcb",
    "TrustRoots",
    "VerifiedEvidence",
]
