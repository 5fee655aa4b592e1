"""Result policy: the closed vocabulary of what may leave (docs/spec/result-policy.md).

Every metric has a finite set of values, written out as low, high and step, or
as a list.  What the policy does not declare cannot be released.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from enclave.core.canonical import (
    digest_bytes,
    parse_canonical,
    parse_json_object,
    print_canonical,
)
from enclave.core.decimals import MAX_DECIMAL_LENGTH, digits_after_point, print_decimal
from enclave.core.errors import DocumentRefused, ReleaseRefused
from enclave.core.fields import Fields
from enclave.core.vocabulary import RESULT_POLICY_TYPE

MAX_RESULT_POLICY_BYTES = 256 * 1024
MAX_METRICS = 64
MAX_CONTROLS = 32
MAX_VALUES = 2**32
"""Most values one metric may have (32 bits)."""

ENUM = "enum"
KINDS = ("ratio", "count", ENUM)

# Bytes of a view besides its metrics: field names, digests, run, slot, one view id.
_VIEW_FRAME_BYTES = 512
# Bytes of one metric besides its id and values: field names and punctuation.
_VIEW_METRIC_BYTES = 40


@dataclass(frozen=True)
class Metric:
    """One declared number.

    ratio, count: `low`, `high`, `step` are canonical decimals, the values are
    low + k * step.  enum: `values` lists them, the other three are None.
    min_n: samples that must stand behind the value.
    max_digits: digits that the sandbox may write after the point (0 for enum).
    """

    id: str
    kind: str
    low: str | None
    high: str | None
    step: str | None
    min_n: int
    max_digits: int
    values: tuple[str, ...]
    views: tuple[str, ...]

    @cached_property
    def size(self) -> int:
        """How many distinct values there are."""
        if self.low is None or self.high is None or self.step is None:
            return len(self.values)
        return int((Fraction(self.high) - Fraction(self.low)) / Fraction(self.step)) + 1

    def print_value(self, steps: int) -> str:
        """The value at an index in [0, size), as a canonical decimal."""
        if not 0 <= steps < self.size:
            raise ValueError("steps out of range")
        if self.low is None or self.step is None:
            return self.values[steps]
        digits = max(digits_after_point(self.low), digits_after_point(self.step))
        return print_decimal(Fraction(self.low) + steps * Fraction(self.step), digits)

    def to_json(self) -> dict[str, Any]:
        """The object as it stands in the policy; which keys it has depends on the kind."""
        shape: dict[str, Any] = (
            {"values": list(self.values)}
            if self.kind == ENUM
            else {
                "low": self.low,
                "high": self.high,
                "step": self.step,
                "max_digits": self.max_digits,
            }
        )
        return {
            "id": self.id,
            "kind": self.kind,
            **shape,
            "min_n": self.min_n,
            "views": list(self.views),
        }


@dataclass(frozen=True)
class Control:
    """A known answer: the run counts only if this control has exactly this value."""

    id: str
    expected: str


@dataclass(frozen=True)
class Baseline:
    """Which metric is the naive baseline of which."""

    metric: str
    baseline: str


@dataclass(frozen=True)
class ResultPolicy:
    """A policy that parsed. Made only by `parse_result_policy`.

    max_bits: most bits that all runs of the plan together may release.
    slot_seconds: released times are rounded down to this.
    release_bytes: exact size of every view.
    """

    max_bits: int
    slot_seconds: int
    release_bytes: int
    metrics: tuple[Metric, ...]
    controls: tuple[Control, ...]
    baselines: tuple[Baseline, ...]

    def to_json(self) -> dict[str, Any]:
        """The policy as a JSON object."""
        return {
            "type": RESULT_POLICY_TYPE,
            "max_bits": self.max_bits,
            "slot_seconds": self.slot_seconds,
            "release_bytes": self.release_bytes,
            "metrics": [metric.to_json() for metric in self.metrics],
            "controls": [{"id": c.id, "expected": c.expected} for c in self.controls],
            "baselines": [{"metric": b.metric, "baseline": b.baseline} for b in self.baselines],
        }

    def to_bytes(self) -> bytes:
        """The policy as RFC 8785 bytes, equal to those it was parsed from."""
        return print_canonical(self.to_json())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes, hex."""
        return digest_bytes(self.to_bytes())

    @cached_property
    def views(self) -> frozenset[str]:
        """Every view that some metric is in."""
        return frozenset(view for metric in self.metrics for view in metric.views)

    def metrics_of(self, view: str) -> tuple[Metric, ...]:
        """The metrics of one view, in the order of the policy."""
        return tuple(metric for metric in self.metrics if view in metric.views)


def _refuse_domain(metric: Metric) -> None:
    if metric.low is None or metric.high is None or metric.step is None:
        return
    low, high, step = Fraction(metric.low), Fraction(metric.high), Fraction(metric.step)
    if step <= 0 or high <= low or (high - low) % step != 0:
        raise ReleaseRefused(
            "policy_metric_range", expected=f"{metric.id}: low < high, a whole number of steps"
        )
    if metric.size > MAX_VALUES:
        raise ReleaseRefused(
            "policy_metric_range", expected=f"{metric.id}: at most {MAX_VALUES} values"
        )
    if metric.kind == "ratio" and (low < 0 or high > 1):
        raise ReleaseRefused("policy_metric_range", expected=f"{metric.id}: a ratio in 0 to 1")
    whole = all(value.denominator == 1 for value in (low, high, step))
    if metric.kind == "count" and not (whole and metric.max_digits == 0 and low >= 0):
        raise ReleaseRefused("policy_metric_range", expected=f"{metric.id}: whole numbers")


def _read_metric(value: object, path: str) -> Metric:
    fields = Fields(value, path)
    kind = fields.constant("kind", *KINDS)
    bounded = kind != ENUM
    values: tuple[str, ...] = ()
    if not bounded:
        entries = fields.array("values", 2, 1024)
        each = [Fields({"value": entry}, f"{path}.values") for entry in entries]
        values = tuple(entry.decimal("value") for entry in each)
        if len(set(values)) != len(values):
            raise DocumentRefused("document_field_value", expected=f"{path}.values: distinct")
    metric = Metric(
        id=fields.identifier("id"),
        kind=kind,
        low=fields.decimal("low") if bounded else None,
        high=fields.decimal("high") if bounded else None,
        step=fields.decimal("step") if bounded else None,
        min_n=fields.integer("min_n", 1, 10_000_000),
        max_digits=fields.integer("max_digits", 0, 12) if bounded else 0,
        values=values,
        views=fields.identifiers("views", 1, 16),
    )
    fields.done()
    _refuse_domain(metric)
    return metric


def _read_control(value: object, path: str) -> Control:
    fields = Fields(value, path)
    control = Control(id=fields.identifier("id"), expected=fields.decimal("expected"))
    fields.done()
    return control


def _read_baseline(value: object, path: str) -> Baseline:
    fields = Fields(value, path)
    baseline = Baseline(metric=fields.identifier("metric"), baseline=fields.identifier("baseline"))
    fields.done()
    return baseline


def largest_view_bytes(policy: ResultPolicy, view: str) -> int:
    """An upper bound of a view's size before padding, in bytes."""
    return _VIEW_FRAME_BYTES + sum(
        _VIEW_METRIC_BYTES + len(metric.id) + MAX_DECIMAL_LENGTH + len(str(metric.size))
        for metric in policy.metrics_of(view)
    )


def _refuse_inconsistent(policy: ResultPolicy) -> None:
    metrics = {metric.id: metric for metric in policy.metrics}
    controls = {control.id for control in policy.controls}
    if len(metrics) != len(policy.metrics) or len(controls) != len(policy.controls):
        raise ReleaseRefused("policy_duplicate_id", expected="each metric and control id once")
    compared = [baseline.metric for baseline in policy.baselines]
    if len(set(compared)) != len(compared):
        raise ReleaseRefused("policy_baseline", expected="one baseline a metric")
    for entry in policy.baselines:
        metric, baseline = metrics.get(entry.metric), metrics.get(entry.baseline)
        if metric is None or baseline is None or metric is baseline:
            raise ReleaseRefused("policy_baseline", expected="two declared, different metrics")
        if not set(metric.views) <= set(baseline.views):
            raise ReleaseRefused(
                "policy_baseline", expected=f"{baseline.id} in every view of {metric.id}"
            )
    for view in sorted(policy.views):
        if largest_view_bytes(policy, view) > policy.release_bytes:
            raise ReleaseRefused(
                "policy_release_bytes",
                expected=f"at least {largest_view_bytes(policy, view)} bytes for view {view}",
                got=str(policy.release_bytes),
            )


def parse_authored_result_policy(data: bytes) -> ResultPolicy:
    """Parse a policy as an author wrote it: whitespace and the order of keys are free."""
    document = parse_json_object(data, max_bytes=MAX_RESULT_POLICY_BYTES)
    return parse_result_policy(print_canonical(document))


def parse_result_policy(data: bytes) -> ResultPolicy:
    """Parse a result policy (canonical bytes, closed).

    Shape errors are `DocumentRefused`, broken rules `ReleaseRefused` (codes `policy_*`).
    """
    fields = Fields(parse_canonical(data, max_bytes=MAX_RESULT_POLICY_BYTES), "policy")
    fields.constant("type", RESULT_POLICY_TYPE)
    policy = ResultPolicy(
        max_bits=fields.integer("max_bits", 1, 2**20),
        slot_seconds=fields.integer("slot_seconds", 60, 7 * 86400),
        release_bytes=fields.integer("release_bytes", 1024, 2**18),
        metrics=tuple(
            _read_metric(value, f"policy.metrics[{index}]")
            for index, value in enumerate(fields.array("metrics", 1, MAX_METRICS))
        ),
        controls=tuple(
            _read_control(value, f"policy.controls[{index}]")
            for index, value in enumerate(fields.array("controls", 1, MAX_CONTROLS))
        ),
        baselines=tuple(
            _read_baseline(value, f"policy.baselines[{index}]")
            for index, value in enumerate(fields.array("baselines", 0, MAX_METRICS))
        ),
    )
    fields.done()
    _refuse_inconsistent(policy)
    return policy
