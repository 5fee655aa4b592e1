from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enclave.core.decimals import digits_after_point, parse_decimal, print_decimal
from enclave.core.errors import STAGES, DocumentRefused, PlanRefused, Refusal, rebuild_refusal
from enclave.core.fields import Fields
from enclave.core.times import parse_time, print_slot, print_time
from tests.core.builders import NOW, expect_refusal

READERS: list[tuple[Callable[[Fields], object], list[object], list[object]]] = [
    (lambda f: f.text("x"), ["a", "é"], ["", "a\n", "a" * 201, 1, None]),
    (lambda f: f.constant("x", "a", "b"), ["a", "b"], ["c", "", None, ["a"]]),
    (lambda f: f.identifier("x"), ["a", "a_b.c-1"], ["A", "1a", "", "a" * 65, "a\n", "é"]),
    (lambda f: f.integer("x", 1, 3), [1, 3], [0, 4, "1", True, None]),
    (lambda f: f.flag("x"), [True, False], [0, 1, "true", None]),
    (lambda f: f.hex("x", 2), ["00ff"], ["00f", "00FF", "00fg", "", "00ff00", "00ff\n", 1]),
    (
        lambda f: f.base64("x", max_size=2),
        ["", "YQ==", "YWI="],
        ["YQ=", "YR==", "YWJj", "Y Q==", 1],
    ),
    (
        lambda f: f.decimal("x"),
        ["0", "-1", "0.5", "-0.5", "10.25"],
        ["-0", "0.50", "01", "1.", ".5", "1e3", "NaN", "+1", "1" * 25, "٣", 1],
    ),
    (lambda f: f.array("x", 1, 2), [[1], [1, 2]], [[], [1, 2, 3], {}, "ab"]),
    (lambda f: f.identifiers("x", 1, 2), [["a"], ["a", "b"]], [["a", "a"], ["A"], [1], []]),
    (lambda f: f.object("x").done(), [{}], [[], None, {"a": 1}]),
    (lambda f: f.nullable_object("x"), [None, {}], [[], 0, ""]),
    (lambda f: f.mapping("x", 1, 2), [{"a": 1}], [{}, {"A": 1}, {"a": 1, "b": 1, "c": 1}]),
]


@pytest.mark.parametrize(("read", "good", "bad"), READERS)
def test_readers(read: Callable[[Fields], object], good: list[object], bad: list[object]) -> None:
    for value in good:
        fields = Fields({"x": value}, "doc")
        read(fields)
        fields.done()
    for value in bad:
        with pytest.raises(DocumentRefused):
            read(Fields({"x": value}, "doc"))
    assert expect_refusal("document_field_missing", lambda: read(Fields({}, "doc")))


def test_unread_fields_are_unknown_fields() -> None:
    fields = Fields({"x": 1, "y": 2}, "doc")
    fields.integer("x", 0, 9)
    refusal = expect_refusal("document_field_unknown", fields.done)
    assert "'y'" in refusal.got


@given(st.binary(max_size=40))
def test_base64_has_one_spelling(data: bytes) -> None:
    text = base64.b64encode(data).decode()
    assert Fields({"x": text}, "doc").base64("x", max_size=40) == data


@given(st.integers(-62135596800, 253402300799).map(lambda s: dt.datetime.fromtimestamp(s, dt.UTC)))
def test_times_parse_print_compare(moment: dt.datetime) -> None:
    printed = print_time(moment)
    assert print_time(parse_time(printed)) == printed
    assert parse_time(printed) == moment
    slot = parse_time(print_slot(moment, 3600))
    assert dt.timedelta(0) <= moment - slot < dt.timedelta(hours=1)
    assert (slot.minute, slot.second) == (0, 0)


@pytest.mark.parametrize(
    "text", ["2026-02-30T00:00:00Z", "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00.0Z", "", "x"]
)
def test_other_times_are_refused(text: str) -> None:
    expect_refusal("document_time", lambda: parse_time(text))


def test_naive_times_are_a_bug() -> None:
    with pytest.raises(ValueError, match="naive"):
        print_time(NOW.replace(tzinfo=None))


@given(st.integers(-(10**12), 10**12), st.integers(0, 9))
def test_decimals_parse_print_compare(numerator: int, digits: int) -> None:
    value = Fraction(numerator, 10**digits)
    text = print_decimal(value, digits)
    assert parse_decimal(text) == value
    assert digits_after_point(text) <= digits
    assert Fields({"x": text}, "doc").decimal("x") == text


@given(st.text("0123456789.-+eE", max_size=8))
def test_decimal_reader_and_parser_agree(text: str) -> None:
    try:
        Fields({"x": text}, "doc").decimal("x")
    except DocumentRefused:
        assert parse_decimal(text) is None
    else:
        assert print_decimal(Fraction(text), 8) == text


def test_decimals_never_round() -> None:
    with pytest.raises(ValueError, match="digits"):
        print_decimal(Fraction(1, 3), 12)


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_refusals_cross_a_border(stage: str) -> None:
    refusal = STAGES[stage]("some_code", expected="a", got="b", hint="c")
    rebuilt = rebuild_refusal(**refusal.as_json())
    assert type(rebuilt) is type(refusal)
    assert str(rebuilt) == str(refusal) == f"{stage}: some_code; expected a; got b (c)"


def test_refusals_of_an_unknown_stage_are_plain() -> None:
    assert type(rebuild_refusal("new_stage", "some_code")) is Refusal


@pytest.mark.parametrize("code", ["", "ab", "Plan", "plan-x", "a" * 65, "plan\n"])
def test_codes_are_stable_words(code: str) -> None:
    with pytest.raises(ValueError, match="code"):
        PlanRefused(code)


def test_fields_read_objects_only() -> None:
    values: list[Any] = [None, [], "x", 1]
    for value in values:
        expect_refusal("document_field_type", lambda value=value: Fields(value, "doc"))
