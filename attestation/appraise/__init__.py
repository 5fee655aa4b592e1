"""From verified evidence to an attestation result: policy, reference values, binding. Pure."""

from attestation.appraise.evidence import BINDING_BYTES, RULES, appraise_evidence
from attestation.appraise.gpu_nonce import derive_gpu_nonce
from attestation.appraise.verdict import VERDICT_TYPE, print_verdict
from attestation.parse.policy import AppraisalPolicy, parse_authored_policy, parse_policy
from attestation.parse.reference_values import (
    ReferenceValues,
    parse_authored_reference_values,
    parse_reference_values,
)
from attestation.types.result import AttestationResult

__all__ = [
    "BINDING_BYTES",
    "RULES",
    "VERDICT_TYPE",
    "AppraisalPolicy",
    "AttestationResult",
    "ReferenceValues",
    "appraise_evidence",
    "derive_gpu_nonce",
    "parse_authored_policy",
    "parse_authored_reference_values",
    "parse_policy",
    "parse_reference_values",
    "print_verdict",
]
