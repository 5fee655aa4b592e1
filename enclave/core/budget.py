"""How many bits a plan can release, counted before it runs (docs/spec/result-policy.md).

The count is a worst case: the number of outcomes the eval code could choose
between, as if it tried to smuggle with every one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from enclave.core.errors import ReleaseRefused
from enclave.core.plan import Plan
from enclave.core.result_policy import Metric, ResultPolicy

REFUSAL_BITS = 6
"""A refused run shows one of at most 64 reason codes."""

OUTCOME_BITS = 1
"""Released or refused."""


@dataclass(frozen=True)
class BudgetLine:
    """One source of bits, named for `plan show`."""

    name: str
    bits: int


@dataclass(frozen=True)
class Budget:
    """Bits of one run and of all runs, and what they are made of."""

    lines: tuple[BudgetLine, ...]
    bits_per_run: int
    bits_total: int
    max_bits: int


def metric_bits(metric: Metric) -> int:
    """ceil(log2(number of distinct values)), exact in integers; one value costs nothing."""
    return (metric.size - 1).bit_length()


def sample_count_bits(max_samples: int) -> int:
    """Bits of the pair (completed, failed) with completed + failed at most `max_samples`."""
    pairs = (max_samples + 1) * (max_samples + 2) // 2
    return (pairs - 1).bit_length()


def finish_slot_bits(wall_seconds: int, slot_seconds: int) -> int:
    """Bits of the slot a run finishes in: eval code decides how long it takes."""
    slots = -(-wall_seconds // slot_seconds) + 1
    return (slots - 1).bit_length()


def compute_budget(plan: Plan, policy: ResultPolicy) -> Budget:
    """Count the bits of a plan under its policy.

    A metric counts once however many views hold it: all views show the same
    value, so a second view tells a coalition of recipients nothing new.
    A released outcome is one of 2**values, a refused one of 2**REFUSAL_BITS;
    one more bit tells which of both.
    """
    lines = [BudgetLine(metric.id, metric_bits(metric)) for metric in policy.metrics]
    lines.append(BudgetLine("sample counts", sample_count_bits(plan.limits.max_samples)))
    slot_bits = finish_slot_bits(plan.limits.wall_seconds, policy.slot_seconds)
    lines.append(BudgetLine("finish slot", slot_bits))
    values = sum(line.bits for line in lines)
    if values < REFUSAL_BITS:
        lines.append(BudgetLine("refusal code", REFUSAL_BITS - values))
    lines.append(BudgetLine("released or refused", OUTCOME_BITS))
    per_run = sum(line.bits for line in lines)
    return Budget(tuple(lines), per_run, per_run * plan.max_runs, policy.max_bits)


def refuse_over_budget(plan: Plan, policy: ResultPolicy) -> Budget:
    """Refuse, before any run, a policy that is not the plan's or that releases too much.

    Codes: `policy_other_digest`, `policy_view_unknown`, `policy_view_empty`,
    `release_budget_exceeded`.
    """
    if policy.digest != plan.result_policy:
        raise ReleaseRefused("policy_other_digest", expected=plan.result_policy, got=policy.digest)
    unknown = sorted(policy.views - set(plan.views))
    if unknown:
        raise ReleaseRefused("policy_view_unknown", expected="views of the plan", got=unknown[0])
    empty = sorted(set(plan.views) - policy.views)
    if empty:
        raise ReleaseRefused("policy_view_empty", expected=f"a metric in view {empty[0]}")
    budget = compute_budget(plan, policy)
    if budget.bits_total > policy.max_bits:
        raise ReleaseRefused(
            "release_budget_exceeded",
            expected=f"at most {policy.max_bits} bits over {plan.max_runs} runs",
            got=f"{budget.bits_total} bits ({budget.bits_per_run} a run)",
            hint="fewer metrics, larger steps or fewer runs",
        )
    return budget
