"""What a receipt says of the run itself, held against its plan and result policy.

Each rule returns what it found, in words, or raises ReceiptRefused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from enclave.clients.auditor.checklist import AuditChecklist
from enclave.core.budget import refuse_over_budget
from enclave.core.errors import ReceiptRefused
from enclave.core.hpke import SEAL_OVERHEAD
from enclave.core.plan_terms import TIERS
from enclave.core.release_view import refuse_off_slot
from enclave.core.result_policy import ResultPolicy
from enclave.core.run_facts import RunFacts
from enclave.core.times import parse_time, print_time

_CLOCK_SLACK = timedelta(minutes=5)
_NO_POLICY = "the plan's result policy is not at hand: give --plan DIR"


def _recipients(facts: RunFacts) -> str:
    due = sorted((view, role) for view, roles in facts.plan.views.items() for role in roles)
    made = sorted((release.view, release.role) for release in facts.releases)
    if made != due:
        raise ReceiptRefused(
            "receipt_releases", expected="one release for each view and recipient of the plan"
        )
    return ", ".join(f"{r.view} to {r.role} sha256:{r.sha256[:16]}…" for r in facts.releases)


def _release_size(facts: RunFacts, policy: ResultPolicy) -> str:
    size = policy.release_bytes + SEAL_OVERHEAD
    if any(release.size != size for release in facts.releases):
        raise ReceiptRefused("receipt_releases", expected=f"releases of {size} bytes")
    return f"every release has {size} bytes, whatever it says"


def _tier(facts: RunFacts) -> str:
    tier, demanded = facts.isolation.tier, facts.plan.isolation.min_tier
    if TIERS.index(tier) < TIERS.index(demanded):
        raise ReceiptRefused("receipt_tier", expected=f"at least {demanded}", got=tier)
    return (
        f"{tier} where the plan demands {demanded}, profile {facts.isolation.profile_digest[:16]}…"
    )


def _probes(facts: RunFacts) -> str:
    tried, refused = facts.isolation.probes_tried, facts.isolation.probes_refused
    if refused != tried:
        raise ReceiptRefused(
            "receipt_probe_passed", expected=f"{tried} probes refused", got=str(refused)
        )
    return f"{tried} attempts to break out of the sandbox, all refused"


def _controls(facts: RunFacts, policy: ResultPolicy) -> str:
    declared = tuple(sorted(control.id for control in policy.controls))
    if facts.controls != declared:
        raise ReceiptRefused("receipt_controls", expected=", ".join(declared))
    return f"known answers came out as agreed: {', '.join(declared)}"


def _samples(facts: RunFacts) -> str:
    if facts.completed + facts.failed > facts.plan.limits.max_samples:
        raise ReceiptRefused(
            "receipt_samples", expected=f"at most {facts.plan.limits.max_samples} samples"
        )
    return f"{facts.completed} completed, {facts.failed} failed"


def _wipe(facts: RunFacts) -> str:
    if facts.wipe.files < 1 or facts.wipe.bytes < 1:
        raise ReceiptRefused("receipt_wipe_unverified", expected="files that were overwritten")
    return (
        f"the enclave overwrote all it opened, at most {facts.wipe.files} files and "
        f"{facts.wipe.bytes} bytes, and read "
        "them back as zero"
    )


def _runs(facts: RunFacts) -> str:
    limit = facts.plan.max_runs
    if not facts.run <= facts.runs_spent <= limit:
        raise ReceiptRefused(
            "receipt_run_past_max",
            expected=f"run ≤ runs spent ≤ {limit}",
            got=f"run {facts.run}, {facts.runs_spent} spent",
        )
    return f"run {facts.run}; {facts.runs_spent} of {limit} spent"


def _bits(facts: RunFacts, policy: ResultPolicy) -> str:
    budget = refuse_over_budget(facts.plan, policy)
    if facts.bits != budget.bits_per_run:
        raise ReceiptRefused("receipt_bits", expected=str(budget.bits_per_run), got=str(facts.bits))
    return (
        f"at most {facts.bits} bits a run, {budget.bits_total} of {budget.max_bits} over all runs"
    )


def _order(facts: RunFacts) -> str:
    started, finished = parse_time(facts.started_slot), parse_time(facts.finished_slot)
    if finished < started or started > facts.plan.not_after:
        raise ReceiptRefused(
            "receipt_slots",
            expected=f"start, then end, begun by {print_time(facts.plan.not_after)}",
            got=f"{facts.started_slot} to {facts.finished_slot}",
        )
    return f"{facts.started_slot} to {facts.finished_slot}, by the enclave's own clock"


def _slots(facts: RunFacts, policy: ResultPolicy) -> str:
    refuse_off_slot(facts.started_slot, policy.slot_seconds)
    refuse_off_slot(facts.finished_slot, policy.slot_seconds)
    return f"times are rounded down to {policy.slot_seconds} s"


def _refuse_ahead(facts: RunFacts, now: datetime) -> str:
    ends = parse_time(facts.finished_slot)
    if ends > now + _CLOCK_SLACK:
        raise ReceiptRefused(
            "receipt_ahead",
            expected=f"a slot that has begun by {print_time(now)}",
            got=facts.finished_slot,
        )
    return f"ended before {print_time(now)}, the time of this audit"


@dataclass(frozen=True)
class _Rule:
    stage: str
    name: str
    facts_alone: Callable[[RunFacts], str] | None = None
    with_policy: Callable[[RunFacts, ResultPolicy], str] | None = None


_RULES = (
    _Rule("releases", "recipients", facts_alone=_recipients),
    _Rule("releases", "size", with_policy=_release_size),
    _Rule("isolation", "tier", facts_alone=_tier),
    _Rule("isolation", "probes", facts_alone=_probes),
    _Rule("controls", "known_answers", with_policy=_controls),
    _Rule("samples", "count", facts_alone=_samples),
    _Rule("wipe", "reported", facts_alone=_wipe),
    _Rule("budget", "runs", facts_alone=_runs),
    _Rule("budget", "bits", with_policy=_bits),
    _Rule("time", "order", facts_alone=_order),
    _Rule("time", "slots", with_policy=_slots),
)


def record_run(
    checks: AuditChecklist,
    facts: RunFacts | None,
    policy: ResultPolicy | None,
    now: datetime,
    reason: str,
) -> None:
    """Record every rule; all are `not_checked` for `reason` where there are no facts."""
    for rule in _RULES:
        if facts is None:
            checks.skip(rule.stage, rule.name, reason)
        elif rule.facts_alone is not None:
            checks.attempt(rule.stage, rule.name, _bind(rule.facts_alone, facts), str)
        elif rule.with_policy is not None and policy is not None:
            checks.attempt(rule.stage, rule.name, _bind(rule.with_policy, facts, policy), str)
        else:
            checks.skip(rule.stage, rule.name, _NO_POLICY)
    if facts is None:
        checks.skip("time", "past", reason)
    else:
        checks.attempt("time", "past", _bind(_refuse_ahead, facts, now), str)


def _bind(rule: Callable[..., str], *arguments: object) -> Callable[[], str]:
    return lambda: rule(*arguments)
