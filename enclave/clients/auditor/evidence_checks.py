"""Evidence: signatures under the auditor's roots, the binding, and the policy."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import datetime

from attestation.appraise import (
    AppraisalPolicy,
    AttestationResult,
    ReferenceValues,
    appraise_evidence,
)
from attestation.errors import CheckState
from attestation.types import SIMULATED, TrustRoots, VerifiedEvidence
from attestation.verify import parse_evidence_bundle, verify_evidence
from enclave.clients.auditor.checklist import AuditChecklist
from enclave.core.errors import BindingRefused

SIMULATED_WARNING = (
    "ANYTHING ABOUT THE MACHINE: the evidence is simulated. Whoever ran it could read every secret."
)

OWN_POLICY_NEEDED = (
    "hardware evidence is not judged by a policy that lies beside the receipt: give --plan, or "
    "--policy and --reference-values"
)


@dataclass(frozen=True)
class Judge:
    """What evidence is judged by; a part that is not at hand is None.

    from_beside: the policy lay beside the receipt, so whoever wrote the receipt may have
    written the policy.
    """

    roots: TrustRoots | None
    policy: AppraisalPolicy | None
    reference_values: ReferenceValues | None
    now: datetime
    from_beside: bool = False


def record_evidence(
    checks: AuditChecklist, stage: str, evidence: bytes, binding: bytes, judge: Judge
) -> AttestationResult | None:
    """Record `signature`, `binding` and `policy` of one evidence bundle."""
    if judge.roots is None:
        for name in ("signature", "binding", "policy"):
            checks.skip(stage, name, "no trust roots: give --roots FILE")
        return None
    roots = judge.roots
    verified = checks.attempt(
        stage,
        "signature",
        lambda: verify_evidence(parse_evidence_bundle(evidence), roots=roots, now=judge.now),
        lambda found: f"chains to the roots; evidence sha256:{found.evidence_digest[:16]}…",
    )
    if verified is None:
        for name in ("binding", "policy"):
            checks.skip(stage, name, "the evidence's signature did not verify")
        return None
    checks.attempt(
        stage,
        "binding",
        lambda: _refuse_unbound(verified, binding),
        lambda _none: "binds plan, session, TLS, HPKE and receipt keys, and the nonce",
    )
    policy, references = judge.policy, judge.reference_values
    if policy is None or references is None:
        checks.skip(stage, "policy", "no policy at hand: give --policy and --reference-values")
        return None
    if needs_own_policy(tuple(claims.kind for claims in verified.claims), judge):
        checks.skip(stage, "policy", OWN_POLICY_NEEDED)
        return None
    return checks.attempt(
        stage,
        "policy",
        lambda: appraise_evidence(
            verified,
            policy=policy,
            reference_values=references,
            expected_binding=binding,
            now=judge.now,
        ),
        lambda result: (
            f"accepted by {result.policy_name}: "
            f"{sum(each.state is CheckState.VERIFIED for each in result.checks)} of "
            f"{len(result.checks)} appraisal checks verified"
        ),
    )


def needs_own_policy(kinds: tuple[str, ...], judge: Judge) -> bool:
    """Whether evidence of these kinds must not be judged by a policy found beside the receipt.

    Simulated evidence proves nothing under any policy, and the report says so loudly.
    Hardware evidence is genuine for whoever rents such a machine: only a policy of the
    auditor's own makes it say anything.
    """
    return judge.from_beside and any(kind != SIMULATED for kind in kinds)


def skip_evidence(checks: AuditChecklist, stage: str, reason: str) -> None:
    """Record the checks of one evidence bundle as not made."""
    for name in ("signature", "binding", "policy"):
        checks.skip(stage, name, reason)


def unproven_claims(result: AttestationResult) -> list[str]:
    """What the policy left open or the kind can not prove, in words."""
    lines = [
        f"Evidence check {check.name}: the policy leaves it open, or the kind can not prove it."
        for check in result.checks
        if check.state is not CheckState.VERIFIED
    ]
    if SIMULATED in result.kinds:
        lines.insert(
            0,
            SIMULATED_WARNING,
        )
    return lines


def _refuse_unbound(verified: VerifiedEvidence, binding: bytes) -> None:
    bound = [claims.report_data for claims in verified.claims if hasattr(claims, "report_data")]
    if not bound or not all(hmac.compare_digest(each, binding) for each in bound):
        raise BindingRefused(
            "binding_mismatch",
            expected=f"{binding[:8].hex()}…",
            got=f"{bound[0][:8].hex()}…" if bound else "no report data",
            hint="the evidence speaks for another plan, session, key or nonce",
        )
