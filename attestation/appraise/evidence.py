"""Appraise verified evidence against one policy, one set of reference values, one binding."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from attestation.appraise.gpu_nonce import derive_gpu_nonce
from attestation.appraise.kinds import record_decision, record_gpu_set, record_kinds
from attestation.appraise.rules.comparisons import Context, Differs, Holds, Rule
from attestation.appraise.rules.nvidia_gpu import NVIDIA_GPU_RULES
from attestation.appraise.rules.sev_snp import SEV_SNP_RULES
from attestation.appraise.rules.simulated import SIMULATED_RULES
from attestation.errors import EndorsementUnavailable, PolicyRefused
from attestation.parse.policy import AppraisalPolicy
from attestation.parse.reference_values import ReferenceValues
from attestation.parse.times import print_time
from attestation.types.claims import Claims
from attestation.types.evidence import NVIDIA_GPU, SEV_SNP, SIMULATED
from attestation.types.result import _APPRAISED, AttestationResult, VerifiedEvidence
from attestation.verify.checklist import Checklist
from attestation.verify.evidence import item_labels

BINDING_BYTES = 64

RULES: Mapping[str, tuple[Rule[Any, Any], ...]] = MappingProxyType(
    {SIMULATED: SIMULATED_RULES, SEV_SNP: SEV_SNP_RULES, NVIDIA_GPU: NVIDIA_GPU_RULES}
)
"""Every rule of every kind: the list to read first."""


def appraise_evidence(
    verified: VerifiedEvidence,
    *,
    policy: AppraisalPolicy,
    reference_values: ReferenceValues,
    expected_binding: bytes,
    now: datetime,
) -> AttestationResult:
    """Accept the evidence or raise PolicyRefused with every independent finding.

    expected_binding: 64 bytes that REPORT_DATA must equal. now: aware, within
    the time for which the evidence was verified, else EndorsementUnavailable.
    """
    if not isinstance(verified, VerifiedEvidence):
        raise TypeError("only verified evidence can be appraised")
    if len(expected_binding) != BINDING_BYTES or now.tzinfo is None:
        raise ValueError("expected_binding must be 64 bytes and now aware")
    checks = Checklist()
    record_decision(policy, checks)
    if not policy.denies_all:
        record_kinds(policy, verified.claims, checks)
        record_gpu_set(policy, verified.claims, checks)
        _record_time(verified, now, checks)
        gpu_nonce = derive_gpu_nonce(expected_binding)
        for label, claim in zip(
            item_labels(tuple(each.kind for each in verified.claims)), verified.claims, strict=True
        ):
            measurements = reference_values.measurements.get(claim.kind, {})
            context = Context(expected_binding, gpu_nonce, now, measurements)
            _record_rules(claim, policy, context, label, checks)
    checks.raise_failures()
    return AttestationResult(
        policy_name=policy.name,
        kinds=policy.kinds,
        claims=verified.claims,
        binding=expected_binding,
        evidence_digest=verified.evidence_digest,
        policy_digest=policy.digest,
        reference_values_digest=reference_values.digest,
        now=now,
        checks=verified.checks + checks.checks,
        _made_by=_APPRAISED,
    )


def _record_time(verified: VerifiedEvidence, now: datetime, checks: Checklist) -> None:
    if verified.now <= now <= verified.valid_until:
        checks.verified("evidence.time")
        return
    checks.failed(
        "evidence.time",
        EndorsementUnavailable,
        code="evidence_out_of_time",
        field="now",
        expected=f"{print_time(verified.now)} to {print_time(verified.valid_until)}",
        got=print_time(now),
    )


def _record_rules(
    claim: Claims, policy: AppraisalPolicy, context: Context, label: str, checks: Checklist
) -> None:
    rules = {
        SIMULATED: policy.simulated,
        SEV_SNP: policy.sev_snp,
        NVIDIA_GPU: policy.nvidia_gpu,
    }[claim.kind]
    if rules is None:  # record_kinds has refused the item
        return
    for rule in RULES[claim.kind]:
        name = f"{label}.{rule.name}"
        outcome = rule.apply(rules, claim, context)
        if isinstance(outcome, Holds):
            checks.verified(name)
        elif isinstance(outcome, Differs):
            code = rule.code or f"{claim.kind}_{rule.name}".replace("-", "_").replace(".", "_")
            checks.failed(
                name,
                PolicyRefused,
                code=code,
                field=rule.field,
                expected=outcome.expected,
                got=outcome.got,
            )
        else:
            checks.not_checked(name)
