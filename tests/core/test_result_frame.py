"""Hostile frames, and values that become steps."""

from __future__ import annotations

import ast
import copy
import json
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import enclave.core.result_frame
from enclave.core.canonical import print_canonical
from enclave.core.errors import ReleaseRefused
from enclave.core.release import (
    parse_result,
    release_result,
)
from enclave.core.result_frame import RELEASE_CODES
from enclave.core.result_policy import parse_result_policy
from tests.core.builders import World, expect_refusal, frame_json, print_json
from tests.core.gate import ACCURACY, parse, release
from tests.core.sessions import SESSION, SLOT
from tests.core.test_plan import edit
from tests.core.test_result_policy import ENUM, RATIO, policy_json


def test_values_become_steps(world: World) -> None:
    result = parse(world, frame_json())
    assert dict(result.steps) == {
        "truthfulqa_mc1_accuracy": 30,  # 0.305 is a tie: the even step
        "truthfulqa_mc1_baseline": 25,
        "arithmetic_accuracy": 100,
        "arithmetic_baseline": 0,
    }
    assert (result.completed, result.failed) == (120, 0)


@pytest.mark.parametrize(
    ("value", "steps"),
    [("0", 0), ("0.004", 0), ("0.005", 0), ("0.015", 2), ("0.0050000001", 1), ("0.999", 100)],
)
def test_rounding_is_half_even(world: World, value: str, steps: int) -> None:
    result = parse(world, edit(frame_json(), (*ACCURACY, "value"), value))
    assert result.steps["truthfulqa_mc1_accuracy"] == steps


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(numerator=st.integers(0, 10**6))
def test_released_value_is_within_half_a_step(world: World, numerator: int) -> None:
    value = Fraction(numerator, 10**6)
    text = f"{numerator / 10**6:.6f}".rstrip("0").rstrip(".")
    view = release(world, parse(world, edit(frame_json(), (*ACCURACY, "value"), text)))
    assert abs(Fraction(view.metrics[0].value) - value) <= Fraction(1, 200)


def test_nothing_of_the_frame_survives(world: World) -> None:
    """Two spellings of the same numbers, and two numbers in one step, give the same bytes."""
    plain = release(world).to_bytes(4096)
    frame = frame_json()
    spaced = json.dumps(frame, indent=7).encode()
    reordered = print_json(dict(reversed(frame.items())))
    smuggling = edit(frame, (*ACCURACY, "value"), "0.304999999999")
    for other in (spaced, reordered, smuggling):
        assert release(world, parse(world, other)).to_bytes(4096) == plain


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ((*ACCURACY, "value"), "NaN", "result_nan"),
        ((*ACCURACY, "value"), "nan", "result_nan"),
        ((*ACCURACY, "value"), "-Infinity", "result_nan"),
        ((*ACCURACY, "value"), float("nan"), "result_nan"),
        ((*ACCURACY, "value"), float("inf"), "result_nan"),
        ((*ACCURACY, "value"), "-0", "result_negative_zero"),
        ((*ACCURACY, "value"), "-0.00", "result_negative_zero"),
        ((*ACCURACY, "value"), "-0e5", "result_negative_zero"),
        ((*ACCURACY, "value"), -0.0, "result_negative_zero"),
        ((*ACCURACY, "value"), 0.5, "result_not_decimal"),
        ((*ACCURACY, "value"), 1, "result_not_decimal"),
        ((*ACCURACY, "value"), True, "result_not_decimal"),
        ((*ACCURACY, "value"), None, "result_not_decimal"),
        ((*ACCURACY, "value"), ["0.5"], "result_not_decimal"),
        ((*ACCURACY, "value"), "", "result_not_decimal"),
        ((*ACCURACY, "value"), "-", "result_not_decimal"),
        ((*ACCURACY, "value"), "0.50", "result_not_decimal"),
        ((*ACCURACY, "value"), "00.5", "result_not_decimal"),
        ((*ACCURACY, "value"), "+0.5", "result_not_decimal"),
        ((*ACCURACY, "value"), "5e-1", "result_not_decimal"),
        ((*ACCURACY, "value"), " 0.5", "result_not_decimal"),
        ((*ACCURACY, "value"), "0.5\n", "result_not_decimal"),
        ((*ACCURACY, "value"), "٠.٥", "result_not_decimal"),
        ((*ACCURACY, "value"), "0,5", "result_not_decimal"),
        ((*ACCURACY, "value"), "the answer is B", "result_not_decimal"),
        ((*ACCURACY, "value"), "0.1234567890123", "result_too_many_digits"),
        ((*ACCURACY, "value"), "0." + "3" * 60, "result_too_many_digits"),
        ((*ACCURACY, "value"), "1.01", "result_out_of_range"),
        ((*ACCURACY, "value"), "-0.01", "result_out_of_range"),
        ((*ACCURACY, "value"), "1" * 20, "result_out_of_range"),
        ((*ACCURACY, "n"), 19, "result_below_min_n"),
        ((*ACCURACY, "n"), 0, "result_below_min_n"),
        ((*ACCURACY, "n"), 121, "result_n_over_completed"),
        ((*ACCURACY, "n"), -1, "result_malformed"),
        ((*ACCURACY, "n"), "100", "result_malformed"),
        ((*ACCURACY, "n"), True, "result_malformed"),
        ((*ACCURACY, "n"), 10**12, "result_malformed"),
        ((*ACCURACY, "note"), "x", "result_malformed"),
        ((*ACCURACY, "n"), ..., "result_malformed"),
        (ACCURACY, "0.5", "result_malformed"),
        (ACCURACY, ..., "result_missing_metric"),
        (("metrics", "per_item"), {"value": "1", "n": 100}, "result_unknown_metric"),
        (("metrics",), [], "result_malformed"),
        (("metrics",), {}, "result_missing_metric"),
        (("metrics",), ..., "result_malformed"),
        (("controls",), {}, "control_missing"),
        (("controls", "oracle"), ..., "control_missing"),
        (("controls", "extra"), "1", "control_unknown"),
        (("controls", "oracle"), "0.99", "control_failed"),
        (("controls", "null_answer"), "1", "control_failed"),
        (("controls", "oracle"), "1.0", "result_not_decimal"),
        (("controls", "oracle"), 1, "result_not_decimal"),
        (("controls", "oracle"), "NaN", "result_nan"),
        (("completed",), 201, "result_too_many_samples"),
        (("failed",), 81, "result_too_many_samples"),
        (("completed",), "120", "result_malformed"),
        (("completed",), 1.5, "result_not_decimal"),
        (("failed",), None, "result_malformed"),
        (("completions",), ["secret"], "result_malformed"),
    ],
)
def test_frames_refused(world: World, path: tuple[str, ...], value: Any, code: str) -> None:
    refusal = expect_refusal(code, lambda: parse(world, edit(frame_json(), path, value)))
    assert isinstance(refusal, ReleaseRefused)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"", "result_malformed"),
        (b"[]", "result_malformed"),
        (b"null", "result_malformed"),
        (b"{} {}", "result_malformed"),
        (b"\xff", "result_malformed"),
        (b"[" * 16000, "result_malformed"),
        (b" " * 16385, "result_too_large"),
        (b'{"metrics":{},"metrics":{},"controls":{},"completed":0,"failed":0}', "result_malformed"),
        (b'{"metrics":{},"controls":{},"completed":-0,"failed":0}', "result_negative_zero"),
        (b'{"metrics":{},"controls":{},"completed":NaN,"failed":0}', "result_nan"),
        (b'{"a":' + b"9" * 5000 + b"}", "result_malformed"),
    ],
)
def test_bytes_refused(world: World, frame: bytes, code: str) -> None:
    expect_refusal(code, lambda: parse(world, frame))


@pytest.mark.parametrize("text", ["-" + "0" * 16000 + "1", "-." + "0" * 16000 + "1"])
def test_a_row_of_zeros_is_read_at_once(world: World, text: str) -> None:
    """A pattern that can split it in many ways holds the gate for minutes."""
    started = time.monotonic()
    expect_refusal(
        "result_not_decimal", lambda: parse(world, edit(frame_json(), ("controls", "oracle"), text))
    )
    assert time.monotonic() - started < 0.5


def test_controls_come_before_metrics(world: World) -> None:
    frame = edit(frame_json(), (*ACCURACY, "value"), "NaN")
    frame["controls"]["oracle"] = "0"
    expect_refusal("control_failed", lambda: parse(world, frame))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=8), c, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_hostile_frames_end_in_a_listed_code(world: World, data: st.DataObject) -> None:
    paths = [("metrics",), ("controls",), ACCURACY, (*ACCURACY, "value"), (*ACCURACY, "n")]
    frame = edit(frame_json(), data.draw(st.sampled_from(paths)), data.draw(JSON))
    try:
        parse(world, frame)
    except ReleaseRefused as refusal:
        assert refusal.expected == RELEASE_CODES[refusal.code]
        assert (refusal.got, refusal.hint) == ("", "")


def test_a_refusal_says_one_of_few_fixed_things() -> None:
    """Its text is a function of its code: no second channel beside the code."""
    source = Path(enclave.core.result_frame.__file__).read_text()
    constants = {
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for code in RELEASE_CODES:
        assert code in constants
    raises = source.count("raise ") - source.count("raise _refuse(")
    assert raises == 0


def test_enums(world: World) -> None:
    document = policy_json(RATIO, ENUM)
    policy = parse_result_policy(print_canonical(document))
    plan = world.other_plan(result_policy=policy.digest)
    frame = {
        "metrics": {"accuracy": {"value": "1", "n": 20}, "grade": {"value": "5", "n": 1}},
        "controls": {"oracle": "1", "null_answer": "0"},
        "completed": 20,
        "failed": 0,
    }
    result = parse_result(print_json(frame), plan, policy)
    assert result.steps["grade"] == 2
    (view,) = release_result(result, plan=plan, policy=policy, session=SESSION, run=1, slot=SLOT)
    assert view.metrics[1].value == "5"
    for value, code in (
        ("3", "result_out_of_range"),
        ("5.0", "result_not_decimal"),
        (5, "result_not_decimal"),
    ):
        frame["metrics"]["grade"]["value"] = value
        expect_refusal(code, lambda: parse_result(print_json(frame), plan, policy))


def test_edit_leaves_the_original() -> None:
    frame = frame_json()
    before = copy.deepcopy(frame)
    edit(frame, ACCURACY, ...)
    assert frame == before
