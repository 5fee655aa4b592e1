"""Attestation policies: the closed document and the rules of each kind, one file a kind."""

from attestation.parse.policy.document import (
    MAX_POLICY_BYTES,
    POLICY_KINDS,
    POLICY_TYPE,
    AppraisalPolicy,
    parse_authored_policy,
    parse_policy,
)
from attestation.parse.policy.nvidia_gpu_rules import GpuRules
from attestation.parse.policy.sev_snp_rules import SnpRules
from attestation.parse.policy.simulated_rules import SimulatedRules

__all__ = [
    "MAX_POLICY_BYTES",
    "POLICY_KINDS",
    "POLICY_TYPE",
    "AppraisalPolicy",
    "GpuRules",
    "SimulatedRules",
    "SnpRules",
    "parse_authored_policy",
    "parse_policy",
]
