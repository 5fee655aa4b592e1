"""Result frame: what the eval code hands to the gate, read with suspicion.

Nothing of the frame's bytes survives: a value becomes an index into the
metric's declared values.  A refusal is one code of `RELEASE_CODES` and a text
that is fixed for that code, because a text that names what was found would be
an unmetered way out (docs/spec/release.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from enclave.core.decimals import digits_after_point, parse_decimal
from enclave.core.errors import ReleaseRefused
from enclave.core.plan import Plan
from enclave.core.result_policy import Metric, ResultPolicy

RELEASE_CODES: Mapping[str, str] = MappingProxyType(
    {
        "result_too_large": "a frame within the plan's result_bytes",
        "result_malformed": "metrics, controls, completed, failed and nothing else",
        "result_nan": "numbers, neither NaN nor infinite",
        "result_negative_zero": "zero without a sign",
        "result_not_decimal": "canonical decimal strings",
        "result_too_many_digits": "at most max_digits after the point",
        "result_out_of_range": "values in the declared range",
        "result_below_min_n": "at least min_n samples behind each metric",
        "result_n_over_completed": "no more samples behind a metric than were completed",
        "result_too_many_samples": "completed and failed within the plan's max_samples",
        "result_unknown_metric": "declared metrics only",
        "result_missing_metric": "every declared metric",
        "control_unknown": "declared controls only",
        "control_missing": "every declared control",
        "control_failed": "every control at its known answer",
    }
)
"""Every reason for which the gate refuses a frame, and its fixed text."""

_MAX_COUNT = 10_000_000
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?\Z")
# No two ways to split a row of zeros: matching takes time in proportion to the text.
_NEGATIVE_ZERO = re.compile(r"-(?=\.?0)0*(?:\.0*)?(?:[eE][+-]?[0-9]+)?\Z")
_NOT_A_NUMBER = frozenset({"nan", "inf", "infinity"})


def _refuse(code: str) -> ReleaseRefused:
    return ReleaseRefused(code, expected=RELEASE_CODES[code])


@dataclass(frozen=True)
class ParsedResult:
    """A frame that passed the gate's rules. Made only by `parse_result`.

    steps: metric id to the index of its value, in the order of the policy.
    completed, failed: sample counts.
    """

    plan: str
    policy: str
    steps: Mapping[str, int]
    completed: int
    failed: int


def _refuse_constant(_text: str) -> Any:
    raise _refuse("result_nan")


def _refuse_float(text: str) -> Any:
    raise _refuse("result_negative_zero" if _NEGATIVE_ZERO.match(text) else "result_not_decimal")


def _parse_count(text: str) -> int:
    if _NEGATIVE_ZERO.match(text):
        raise _refuse("result_negative_zero")
    if len(text) > 9:
        raise _refuse("result_malformed")
    return int(text)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _refuse("result_malformed")
    return fields


def _load(frame: bytes) -> Any:
    try:
        return json.loads(
            frame.decode("utf-8", "strict"),
            parse_constant=_refuse_constant,
            parse_float=_refuse_float,
            parse_int=_parse_count,
            object_pairs_hook=_refuse_duplicates,
        )
    except (ValueError, RecursionError):
        raise _refuse("result_malformed") from None


def _object(value: object, keys: frozenset[str] | None = None) -> dict[str, Any]:
    if not isinstance(value, dict) or (keys is not None and set(value) != keys):
        raise _refuse("result_malformed")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_COUNT:
        raise _refuse("result_malformed")
    return value


def _parse_value(text: object) -> Fraction:
    if not isinstance(text, str):
        raise _refuse("result_not_decimal")
    if text.strip().lstrip("+-").lower() in _NOT_A_NUMBER:
        raise _refuse("result_nan")
    if len(text) > 1 and _NEGATIVE_ZERO.match(text):
        raise _refuse("result_negative_zero")
    value = parse_decimal(text)
    if value is None:
        raise _refuse("result_not_decimal")
    return value


def _steps(metric: Metric, text: object) -> int:
    """The index of the declared value nearest to the sandbox's, ties to the even index."""
    if metric.low is None or metric.high is None or metric.step is None:
        _parse_value(text)
        if text not in metric.values:
            raise _refuse("result_out_of_range")
        return metric.values.index(str(text))
    is_plain = isinstance(text, str) and _NUMBER.match(text) is not None
    if is_plain and digits_after_point(str(text)) > metric.max_digits:
        raise _refuse("result_too_many_digits")
    value = _parse_value(text)
    low, high = Fraction(metric.low), Fraction(metric.high)
    if not low <= value <= high:
        raise _refuse("result_out_of_range")
    return round((value - low) / Fraction(metric.step))


def _refuse_other_keys(got: Mapping[str, Any], declared: set[str], kind: str) -> None:
    unknown, missing = {
        "metric": ("result_unknown_metric", "result_missing_metric"),
        "control": ("control_unknown", "control_missing"),
    }[kind]
    if set(got) - declared:
        raise _refuse(unknown)
    if declared - set(got):
        raise _refuse(missing)


def parse_result(frame: bytes, plan: Plan, policy: ResultPolicy) -> ParsedResult:
    """Read a frame under the plan and its policy; refuses with one of `RELEASE_CODES`.

    The order is fixed: size, shape, names, controls, sample counts, metrics in
    the order of the policy.  A failed control therefore stops everything else.
    """
    if len(frame) > plan.limits.result_bytes:
        raise _refuse("result_too_large")
    keys = frozenset({"metrics", "controls", "completed", "failed"})
    document = _object(_load(frame), keys)
    metrics, controls = _object(document["metrics"]), _object(document["controls"])
    _refuse_other_keys(metrics, {metric.id for metric in policy.metrics}, "metric")
    _refuse_other_keys(controls, {control.id for control in policy.controls}, "control")
    for control in policy.controls:
        if _parse_value(controls[control.id]) != Fraction(control.expected):
            raise _refuse("control_failed")
    completed, failed = _count(document["completed"]), _count(document["failed"])
    if completed + failed > plan.limits.max_samples:
        raise _refuse("result_too_many_samples")
    steps: dict[str, int] = {}
    for metric in policy.metrics:
        entry = _object(metrics[metric.id], frozenset({"value", "n"}))
        n = _count(entry["n"])
        steps[metric.id] = _steps(metric, entry["value"])
        if n > completed:
            raise _refuse("result_n_over_completed")
        if n < metric.min_n:
            raise _refuse("result_below_min_n")
    return ParsedResult(plan.digest, policy.digest, MappingProxyType(steps), completed, failed)
