"""What must hold between the fields of a receipt, and between a receipt and its plan."""

from __future__ import annotations

from enclave.core.approval import Approvals, verify_approvals
from enclave.core.budget import refuse_over_budget
from enclave.core.errors import ReceiptRefused
from enclave.core.hpke import SEAL_OVERHEAD
from enclave.core.plan_terms import TIERS
from enclave.core.release_view import refuse_off_slot
from enclave.core.result_policy import ResultPolicy
from enclave.core.run_facts import RunFacts
from enclave.core.times import parse_time
from enclave.core.vocabulary import APPROVING_ROLES


def _refuse(code: str, expected: str, got: str = "") -> ReceiptRefused:
    return ReceiptRefused(code, expected=expected, got=got)


def _refuse_evidence(facts: RunFacts) -> None:
    labels = [entry.label for entry in facts.evidence]
    if len(set(labels)) != len(labels) or not set(APPROVING_ROLES) <= set(labels):
        raise _refuse("receipt_evidence_missing", "evidence for each approving role, once a label")
    nonces = [entry.nonce for entry in facts.evidence]
    if len(set(nonces)) != len(nonces):
        raise _refuse("receipt_nonce_reused", "a nonce for each label")
    demanded = {role for role, demand in facts.plan.party_evidence.items() if demand is not None}
    shown = [entry.role for entry in facts.party_evidence]
    if sorted(demanded) != sorted(shown):
        raise _refuse(
            "receipt_party_evidence", f"party evidence of exactly {sorted(demanded) or 'nobody'}"
        )


def refuse_inconsistent_facts(facts: RunFacts) -> None:
    """Refuse a receipt whose fields contradict each other or the plan it carries."""
    plan = facts.plan
    if facts.run > plan.max_runs or facts.runs_spent > plan.max_runs:
        raise _refuse("receipt_run_past_max", f"at most {plan.max_runs}", str(facts.run))
    _refuse_evidence(facts)
    isolation = facts.isolation
    if TIERS.index(isolation.tier) < TIERS.index(plan.isolation.min_tier):
        raise _refuse("receipt_tier", f"at least {plan.isolation.min_tier}", isolation.tier)
    if isolation.probes_refused != isolation.probes_tried:
        raise _refuse(
            "receipt_probe_passed",
            f"{isolation.probes_tried} probes refused",
            str(isolation.probes_refused),
        )
    if facts.completed + facts.failed > plan.limits.max_samples:
        raise _refuse("receipt_samples", f"at most {plan.limits.max_samples} samples")
    due = [(view, role) for view, roles in plan.views.items() for role in roles]
    if sorted((r.view, r.role) for r in facts.releases) != sorted(due):
        raise _refuse("receipt_releases", "one release for each view and recipient of the plan")
    if len({release.size for release in facts.releases}) != 1:
        raise _refuse("receipt_releases", "releases of one size")
    if parse_time(facts.finished_slot) < parse_time(facts.started_slot):
        raise _refuse("receipt_slots", "finished_slot not before started_slot")


def verify_receipt_approvals(facts: RunFacts) -> Approvals:
    """Verify both approvals as of the slot in which the run started.

    The receipt's own time is what the enclave believed; parties enforce expiry
    by their own clock when they grant.
    """
    approvals = verify_approvals(facts.approvals, facts.plan, parse_time(facts.started_slot))
    if approvals.envelopes != facts.approvals:
        raise _refuse("receipt_approval_order", "the model owner's approval, then the evaluator's")
    if facts.runs_spent > approvals.max_runs or facts.run > approvals.max_runs:
        raise _refuse("receipt_run_past_max", f"at most {approvals.max_runs} runs approved")
    return approvals


def refuse_other_result_policy(facts: RunFacts, policy: ResultPolicy) -> None:
    """Refuse a receipt that does not fit the result policy its plan pins.

    Needs the policy document, which a receipt does not carry: an auditor who
    has none reports this check as not checked.
    """
    budget = refuse_over_budget(facts.plan, policy)
    if facts.bits != budget.bits_per_run:
        raise _refuse("receipt_bits", str(budget.bits_per_run), str(facts.bits))
    declared = tuple(sorted(control.id for control in policy.controls))
    if facts.controls != declared:
        raise _refuse("receipt_controls", "every control of the policy")
    size = policy.release_bytes + SEAL_OVERHEAD
    if any(release.size != size for release in facts.releases):
        raise _refuse("receipt_releases", f"releases of {size} bytes")
    refuse_off_slot(facts.started_slot, policy.slot_seconds)
    refuse_off_slot(facts.finished_slot, policy.slot_seconds)
