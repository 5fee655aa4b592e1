"""Released view: the gate's own bytes, of one size (docs/spec/release.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from enclave.core.canonical import parse_canonical, print_canonical
from enclave.core.errors import DocumentRefused, ReleaseRefused
from enclave.core.fields import Fields
from enclave.core.result_policy import Metric, ResultPolicy
from enclave.core.times import parse_time
from enclave.core.vocabulary import DIGEST_SIZE, MAX_RUNS, RELEASE_TYPE, SESSION_SIZE

PAD = "."
MAX_VIEW_BYTES = 2**18


@dataclass(frozen=True)
class ReleasedMetric:
    """One released number: its decimal spelling and its index among the declared values."""

    id: str
    value: str
    steps: int


@dataclass(frozen=True)
class ReleasedView:
    """What one view says. `slot` is the start of the time slot of the release."""

    plan: str
    session: str
    run: int
    view: str
    slot: str
    metrics: tuple[ReleasedMetric, ...]

    def _json(self, pad: str) -> dict[str, Any]:
        return {
            "type": RELEASE_TYPE,
            "plan": self.plan,
            "session": self.session,
            "run": self.run,
            "view": self.view,
            "slot": self.slot,
            "metrics": [{"id": m.id, "value": m.value, "steps": m.steps} for m in self.metrics],
            "pad": pad,
        }

    def to_bytes(self, release_bytes: int) -> bytes:
        """RFC 8785 bytes, padded to exactly `release_bytes`."""
        room = release_bytes - len(print_canonical(self._json("")))
        if room < 0:
            raise ReleaseRefused("release_view_size", expected=f"at most {release_bytes} bytes")
        return print_canonical(self._json(PAD * room))


def refuse_off_slot(slot: str, slot_seconds: int) -> None:
    """Refuse `release_slot` unless the time is the start of a slot."""
    try:
        moment = parse_time(slot)
    except DocumentRefused:
        raise ReleaseRefused("release_slot", expected="YYYY-MM-DDTHH:MM:SSZ") from None
    if int(moment.timestamp()) % slot_seconds != 0:
        raise ReleaseRefused(
            "release_slot", expected=f"a multiple of {slot_seconds} seconds", got=slot
        )


def _read_metric(value: object, metric: Metric, path: str) -> ReleasedMetric:
    fields = Fields(value, path)
    fields.constant("id", metric.id)
    released = ReleasedMetric(
        metric.id, fields.decimal("value"), fields.integer("steps", 0, metric.size - 1)
    )
    fields.done()
    if metric.print_value(released.steps) != released.value:
        raise ReleaseRefused("release_view_value", expected=f"{metric.id}: value at its steps")
    return released


def parse_view(data: bytes, view: str, policy: ResultPolicy) -> ReleasedView:
    """Parse a view: canonical, closed, padded, and every metric as the policy declares it."""
    if len(data) != policy.release_bytes:
        raise ReleaseRefused(
            "release_view_size", expected=f"{policy.release_bytes} bytes", got=str(len(data))
        )
    fields = Fields(parse_canonical(data, max_bytes=MAX_VIEW_BYTES), "view")
    fields.constant("type", RELEASE_TYPE)
    declared = policy.metrics_of(view)
    entries = fields.array("metrics", len(declared), len(declared))
    released = ReleasedView(
        plan=fields.hex("plan", DIGEST_SIZE),
        session=fields.hex("session", SESSION_SIZE),
        run=fields.integer("run", 1, MAX_RUNS),
        view=fields.constant("view", view),
        slot=fields.text("slot", max_length=20),
        metrics=tuple(
            _read_metric(entry, metric, f"view.metrics[{index}]")
            for index, (entry, metric) in enumerate(zip(entries, declared, strict=True))
        ),
    )
    pad = fields.text("pad", max_length=MAX_VIEW_BYTES, min_length=0)
    fields.done()
    if pad.strip(PAD):
        raise ReleaseRefused("release_view_size", expected=f"a pad of {PAD!r} only")
    refuse_off_slot(released.slot, policy.slot_seconds)
    return released
