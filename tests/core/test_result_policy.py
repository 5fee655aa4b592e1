from __future__ import annotations

import copy
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enclave.core.budget import (
    REFUSAL_BITS,
    compute_budget,
    finish_slot_bits,
    metric_bits,
    refuse_over_budget,
    sample_count_bits,
)
from enclave.core.canonical import print_canonical
from enclave.core.decimals import print_decimal
from enclave.core.release_view import ReleasedMetric, ReleasedView
from enclave.core.result_frame import RELEASE_CODES
from enclave.core.result_policy import (
    ResultPolicy,
    largest_view_bytes,
    parse_authored_result_policy,
    parse_result_policy,
)
from tests.core.builders import DEMO_POLICY, World, demo_policy, demo_policy_json, expect_refusal
from tests.core.test_plan import at, edit, objects

RATIO = {
    "id": "accuracy",
    "kind": "ratio",
    "low": "0",
    "high": "1",
    "step": "0.01",
    "min_n": 20,
    "max_digits": 4,
    "views": ["summary"],
}
COUNT = {**RATIO, "id": "solved", "kind": "count", "high": "100", "step": "5", "max_digits": 0}
ENUM = {"id": "grade", "kind": "enum", "values": ["1", "2", "5"], "min_n": 1, "views": ["summary"]}


def policy_json(*metrics: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        **demo_policy_json(),
        "metrics": copy.deepcopy(list(metrics)),
        "baselines": [],
        **changes,
    }


def policy(*metrics: dict[str, Any], **changes: Any) -> ResultPolicy:
    return parse_result_policy(print_canonical(policy_json(*metrics, **changes)))


def test_shipped_example() -> None:
    shipped = parse_authored_result_policy(DEMO_POLICY.read_bytes())
    assert [(metric.id, metric.min_n) for metric in shipped.metrics] == [
        ("truthfulqa_mc1_accuracy", 20),
        ("truthfulqa_mc1_baseline", 20),
        ("arithmetic_accuracy", 10),
        ("arithmetic_baseline", 10),
    ]
    assert {control.id: control.expected for control in shipped.controls} == {
        "oracle": "1",
        "null_answer": "0",
    }
    assert shipped.views == {"summary"}
    assert (shipped.slot_seconds, shipped.release_bytes) == (3600, 4096)


def test_parse_print_compare() -> None:
    data = print_canonical(policy_json(RATIO, COUNT, ENUM))
    assert parse_result_policy(data).to_bytes() == data


STEPS = st.integers(1, 400)


@st.composite
def metrics(draw: st.DrawFn) -> dict[str, Any]:
    digits = draw(st.integers(0, 4))
    step = Fraction(draw(st.integers(1, 50)), 10**digits)
    low = Fraction(draw(st.integers(0, 1000)), 10**digits)
    if digits == 0:
        return {
            **COUNT,
            "low": str(low),
            "step": str(step),
            "high": str(low + step * draw(STEPS)),
        }
    low, high = low / 10000, (low + step * draw(STEPS)) / 10000
    if high > 1:
        return {**RATIO}
    texts = [print_decimal(value, digits + 4) for value in (low, high, step / 10000)]
    return {**RATIO, "low": texts[0], "high": texts[1], "step": texts[2], "max_digits": 12}


@settings(max_examples=60)
@given(metrics())
def test_any_declared_metric_parses_and_prints_its_values(metric: dict[str, Any]) -> None:
    data = print_canonical(policy_json(metric))
    parsed = parse_result_policy(data)
    assert parsed.to_bytes() == data
    (declared,) = parsed.metrics
    assert declared.print_value(0) == metric["low"]
    assert declared.print_value(declared.size - 1) == metric["high"]
    for steps in (-1, declared.size):
        with pytest.raises(ValueError, match="steps"):
            declared.print_value(steps)


def test_values_are_exact_decimals() -> None:
    (metric,) = policy(RATIO).metrics
    printed = [metric.print_value(steps) for steps in range(metric.size)]
    assert printed[:3] == ["0", "0.01", "0.02"]
    assert printed[10] == "0.1"
    assert printed[-1] == "1"
    assert len(set(printed)) == 101
    (grade,) = policy(ENUM).metrics
    assert [grade.print_value(steps) for steps in range(grade.size)] == ["1", "2", "5"]


def test_closed() -> None:
    document = policy_json(RATIO, COUNT, ENUM)
    document["baselines"] = [{"metric": "accuracy", "baseline": "solved"}]
    for path in objects(document):
        unknown = edit(document, (*path, "zz"), 1)
        expect_refusal(
            "document_field_unknown", lambda d=unknown: parse_result_policy(print_canonical(d))
        )
        for key in at(document, path):
            missing = edit(document, (*path, key), ...)
            expect_refusal(
                "document_field_missing", lambda d=missing: parse_result_policy(print_canonical(d))
            )


@pytest.mark.parametrize(
    ("metric", "code"),
    [
        ({**RATIO, "step": "0"}, "policy_metric_range"),
        ({**RATIO, "step": "-0.01"}, "policy_metric_range"),
        ({**RATIO, "step": "0.03"}, "policy_metric_range"),
        ({**RATIO, "low": "1", "high": "0"}, "policy_metric_range"),
        ({**RATIO, "low": "1"}, "policy_metric_range"),
        ({**RATIO, "high": "1.01"}, "policy_metric_range"),
        ({**RATIO, "low": "-0.01"}, "policy_metric_range"),
        ({**RATIO, "step": "0.0000000001"}, "policy_metric_range"),
        ({**RATIO, "step": "0.010"}, "document_field_value"),
        ({**RATIO, "step": 1}, "document_field_type"),
        ({**RATIO, "min_n": 0}, "document_field_value"),
        ({**RATIO, "max_digits": 13}, "document_field_value"),
        ({**RATIO, "kind": "text"}, "document_field_value"),
        ({**RATIO, "views": []}, "document_field_value"),
        ({**RATIO, "views": ["a", "a"]}, "document_field_value"),
        ({**RATIO, "values": ["0", "1"]}, "document_field_unknown"),
        ({**COUNT, "step": "0.5"}, "policy_metric_range"),
        ({**COUNT, "max_digits": 1}, "policy_metric_range"),
        ({**COUNT, "low": "-5"}, "policy_metric_range"),
        ({**ENUM, "values": ["1"]}, "document_field_value"),
        ({**ENUM, "values": ["1", "1"]}, "document_field_value"),
        ({**ENUM, "values": ["1", "-0"]}, "document_field_value"),
        ({**ENUM, "values": ["1", "word"]}, "document_field_value"),
        ({**ENUM, "low": "0"}, "document_field_unknown"),
    ],
)
def test_metrics_refused(metric: dict[str, Any], code: str) -> None:
    expect_refusal(code, lambda: policy(metric))


OTHER = {**RATIO, "id": "other"}
HIDDEN = {**RATIO, "id": "hidden", "views": ["inner"]}


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (policy_json(RATIO, RATIO), "policy_duplicate_id"),
        (policy_json(RATIO, controls=[{"id": "c", "expected": "1"}] * 2), "policy_duplicate_id"),
        (policy_json(RATIO, controls=[]), "document_field_value"),
        (policy_json(), "document_field_value"),
        (
            policy_json(RATIO, baselines=[{"metric": "accuracy", "baseline": "accuracy"}]),
            "policy_baseline",
        ),
        (
            policy_json(RATIO, baselines=[{"metric": "accuracy", "baseline": "absent"}]),
            "policy_baseline",
        ),
        (
            policy_json(RATIO, OTHER, baselines=[{"metric": "accuracy", "baseline": "other"}] * 2),
            "policy_baseline",
        ),
        (
            policy_json(RATIO, HIDDEN, baselines=[{"metric": "accuracy", "baseline": "hidden"}]),
            "policy_baseline",
        ),
        (policy_json(RATIO, release_bytes=1023), "document_field_value"),
        (
            policy_json(*({**RATIO, "id": f"metric_{i}"} for i in range(20)), release_bytes=1024),
            "policy_release_bytes",
        ),
        (policy_json(RATIO, slot_seconds=59), "document_field_value"),
        (policy_json(RATIO, max_bits=0), "document_field_value"),
    ],
)
def test_policies_refused(document: dict[str, Any], code: str) -> None:
    expect_refusal(code, lambda: parse_result_policy(print_canonical(document)))


def test_the_largest_view_fits_its_bound() -> None:
    tight = policy(*({**RATIO, "id": f"m{i:02}" + "x" * 61} for i in range(10)), release_bytes=4096)
    view = ReleasedView(
        plan="0" * 64,
        session="0" * 32,
        run=1000,
        view="v" * 64,
        slot="2026-10-01T12:00:00Z",
        metrics=tuple(ReleasedMetric(m.id, "-1." + "9" * 21, m.size - 1) for m in tight.metrics),
    )
    assert len(view.to_bytes(largest_view_bytes(tight, "summary"))) == largest_view_bytes(
        tight, "summary"
    )


@given(st.integers(2, 2000))
def test_bits_are_the_exact_ceiling_of_log2(size: int) -> None:
    (metric,) = policy({**COUNT, "low": "0", "high": str(size - 1), "step": "1"}).metrics
    bits = metric_bits(metric)
    assert metric.size == size
    assert 2 ** (bits - 1) < size <= 2**bits


@given(st.integers(1, 10**7))
def test_sample_count_bits_cover_every_pair(max_samples: int) -> None:
    pairs = (max_samples + 1) * (max_samples + 2) // 2
    bits = sample_count_bits(max_samples)
    assert 2 ** (bits - 1) < pairs <= 2**bits


def test_pairs_are_counted_right() -> None:
    for limit in range(1, 9):
        pairs = {(c, f) for c in range(limit + 1) for f in range(limit + 1) if c + f <= limit}
        assert len(pairs) == (limit + 1) * (limit + 2) // 2


@given(st.integers(1, 10**6), st.integers(60, 10**5), st.integers(0, 10**5))
def test_finish_slot_bits_cover_every_slot(wall: int, slot: int, start: int) -> None:
    reachable = {(start + spent) // slot for spent in (0, wall // 2, wall)}
    assert max(reachable) - min(reachable) < 2 ** finish_slot_bits(wall, slot)
    assert finish_slot_bits(600, 3600) == 1


def test_budget_of_the_demo(world: World) -> None:
    budget = compute_budget(world.plan, demo_policy())
    assert [line.bits for line in budget.lines] == [7, 7, 7, 7, 15, 1, 1]
    assert (budget.bits_per_run, budget.bits_total, budget.max_bits) == (45, 135, 256)


def test_a_refusal_code_fits_its_bits() -> None:
    assert len(RELEASE_CODES) <= 2**REFUSAL_BITS


def test_tiny_policies_still_pay_for_the_refusal_code(world: World) -> None:
    plan = world.other_plan(limits={**world.document["limits"], "max_samples": 1})
    tiny = policy({**ENUM, "values": ["0", "1"]})
    budget = compute_budget(plan, tiny)
    assert budget.bits_per_run == REFUSAL_BITS + 1


def test_a_second_view_costs_nothing(world: World) -> None:
    one = compute_budget(world.plan, policy(RATIO))
    two = compute_budget(world.plan, policy({**RATIO, "views": ["summary", "inner"]}))
    assert one.bits_per_run == two.bits_per_run


def with_policy(world: World, document: dict[str, Any], **changes: Any) -> tuple[Any, ResultPolicy]:
    parsed = parse_result_policy(print_canonical(document))
    return world.other_plan(result_policy=parsed.digest, **changes), parsed


def test_over_budget(world: World) -> None:
    document = {**demo_policy_json(), "max_bits": 135}
    refuse_over_budget(*with_policy(world, document))
    plan, parsed = with_policy(world, {**document, "max_bits": 134})
    refusal = expect_refusal("release_budget_exceeded", lambda: refuse_over_budget(plan, parsed))
    assert refusal.got == "135 bits (45 a run)"
    refuse_over_budget(*with_policy(world, {**document, "max_bits": 90}, max_runs=2))


def test_policy_and_plan_must_fit(world: World) -> None:
    other = parse_result_policy(print_canonical({**demo_policy_json(), "max_bits": 255}))
    expect_refusal("policy_other_digest", lambda: refuse_over_budget(world.plan, other))
    extra = {"summary": ["evaluator"], "inner": ["model_owner"]}
    plan = world.other_plan(views=extra, publication={"may_publish": [], "not_before": "release"})
    expect_refusal("policy_view_empty", lambda: refuse_over_budget(plan, demo_policy()))
    plan, parsed = with_policy(world, policy_json(RATIO, HIDDEN))
    expect_refusal("policy_view_unknown", lambda: refuse_over_budget(plan, parsed))
