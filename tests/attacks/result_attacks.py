"""Attacks by eval code through its one way out: the result frame and the gate."""

from __future__ import annotations

import json
import struct
from typing import Any

from enclave.core.errors import ReleaseRefused, RunRefused
from enclave.core.release import open_view
from enclave.core.result_policy import parse_result_policy
from enclave.core.times import print_slot
from enclave.core.vocabulary import EVALUATOR as EVALUATOR_ROLE
from enclave.core.vocabulary import MODEL_OWNER as OWNER_ROLE
from enclave.workload.broker.gate_client import GateClient, Release
from tests.attacks.acceptance import EVALUATOR, HOST, HOSTILE_BUNDLE, Step, Table
from tests.attacks.documents import frame, frame_with
from tests.attacks.scene import Stage, Workload

ATTACKS = Table()


def released(stage: Stage, workload: Workload, data: bytes) -> Release:
    """What the gate lets out of a frame that the sandbox wrote."""
    gate = workload.live.gate
    gate.result_end.sendall(data)
    gate.close_result_end()
    gate.request_release(1, print_slot(stage.scene.now, 3600))
    return gate.receive_release()


def framed(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def attempt(stage: Stage, data: bytes | dict[str, Any]) -> Step:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    workload = stage.workload()
    return lambda: released(stage, workload, framed(text))


def refused(name: str, code: str, data: bytes | dict[str, Any], covers: str = "") -> None:
    """An entry whose whole attack is one frame."""
    ATTACKS.add(name, by=HOSTILE_BUNDLE, error=ReleaseRefused, code=code, covers=covers)(
        lambda stage: attempt(stage, data)
    )


def metric(**entry: Any) -> dict[str, Any]:
    """The honest frame with other metrics."""
    return frame(metrics={**frame()["metrics"], **entry})


SMUGGLED = {"value": "0.5", "n": 100}

refused(
    "result-unknown-metric",
    "result_unknown_metric",
    metric(first_prompt=SMUGGLED),
    "result with an unknown metric",
)
refused(
    "result-missing-metric",
    "result_missing_metric",
    frame(metrics={"accuracy": SMUGGLED}),
)
refused("result-nan", "result_nan", frame_with(float("nan")), "result with NaN")
refused("result-nan-payload", "result_nan", frame_with("NaN"), "result with NaN")
refused("result-infinity", "result_nan", frame_with(float("-inf")), "result with NaN")
refused("result-negative-zero", "result_negative_zero", frame_with("-0"), "result with −0")
refused("result-negative-zero-number", "result_negative_zero", frame_with(-0.0), "result with −0")
refused(
    "result-negative-zero-count",
    "result_negative_zero",
    frame_with("0.5").replace(b'"failed": 0', b'"failed": -0'),
    "result with −0",
)
refused(
    "result-too-many-digits",
    "result_too_many_digits",
    frame_with("0.3051234"),
    "result with too many digits",
)
refused("result-mantissa", "result_not_decimal", frame_with(0.1234567890123456))
refused("result-exponent", "result_not_decimal", frame_with("5e-1"))
refused("result-spelling", "result_not_decimal", frame_with("0.50"))
refused("result-plus-sign", "result_not_decimal", frame_with("+0.5"))
refused("result-other-digits", "result_not_decimal", frame_with("0.٥"))
refused("result-above-range", "result_out_of_range", frame_with("1.01"), "result out of range")
refused("result-below-range", "result_out_of_range", frame_with("-0.01"), "result out of range")
refused(
    "result-n-too-small",
    "result_below_min_n",
    frame_with("0.5", n=9),
    "result with n below the minimum",
)
refused("result-n-invented", "result_n_over_completed", frame_with("0.5", n=101))
refused(
    "result-oversize",
    "result_too_large",
    b'{"metrics":' + b" " * 5000 + b"}",
    "result oversize",
)
refused("result-too-many-samples", "result_too_many_samples", frame(completed=1001))
refused("result-free-text", "result_malformed", frame(note="the third prompt was: …"))
refused("result-key-twice", "result_malformed", frame_with("0.5")[:-1] + b', "failed": 1}')
refused("result-huge-count", "result_malformed", frame(completed=10**12))
refused("result-not-json", "result_malformed", b"\x80\x04weights of the model")
refused("result-too-deep", "result_malformed", b"[" * 4000)
refused("control-failed", "control_failed", frame(controls={"oracle": "0.99", "null_answer": "0"}))
refused("control-missing", "control_missing", frame(controls={"oracle": "1"}))
refused(
    "control-unknown",
    "control_unknown",
    frame(controls={"oracle": "1", "null_answer": "0", "secret": "1"}),
)


@ATTACKS.add(
    "result-oversize-announced",
    by=HOSTILE_BUNDLE,
    covers="result oversize",
    error=ReleaseRefused,
    code="result_too_large",
)
def result_oversize_announced(stage: Stage) -> Step:
    """Four gigabytes announced, to have the gate allocate them."""
    workload = stage.workload()
    return lambda: released(stage, workload, b"\xff\xff\xff\xff" + b"x" * 100)


@ATTACKS.add("result-cut-short", by=HOSTILE_BUNDLE, error=RunRefused, code="result_missing")
def result_cut_short(stage: Stage) -> Step:
    workload = stage.workload()
    return lambda: released(stage, workload, framed(frame_with("0.5"))[:-1])


@ATTACKS.add("result-none", by=HOSTILE_BUNDLE, error=RunRefused, code="result_missing")
def result_none(stage: Stage) -> Step:
    workload = stage.workload()
    return lambda: released(stage, workload, b"")


@ATTACKS.add("refusal-as-a-channel", by=HOSTILE_BUNDLE, error=RunRefused, code="bundle_failed")
def refusal_as_a_channel(stage: Stage) -> Step:
    """A failure with a code of the bundle's own making would be free text."""
    return attempt(stage, {"failed": "the_answer_is_forty_two"})


@ATTACKS.add("release-twice", by=HOST, error=ReleaseRefused, code="gate_order")
def release_twice(stage: Stage) -> Step:
    """Ask the gate again, to see another draw of the same secrets."""
    workload = stage.workload()
    released(stage, workload, framed(frame_with("0.5")))

    def again() -> Release:
        workload.live.gate.request_release(1, print_slot(stage.scene.now, 3600))
        return workload.live.gate.receive_release()

    return again


@ATTACKS.add("release-off-slot", by=HOST, error=ReleaseRefused, code="release_slot")
def release_off_slot(stage: Stage) -> Step:
    """A time to the second would tell how long the run took."""
    gate: GateClient = stage.workload().live.gate
    gate.result_end.sendall(framed(frame_with("0.5")))
    gate.request_release(1, "2026-10-01T12:00:01Z")
    return gate.receive_release


def sealed_view(stage: Stage, role: str) -> tuple[Workload, bytes]:
    workload = stage.workload()
    release = released(stage, workload, framed(frame_with("0.5")))
    return workload, next(view.sealed for view in release.views if view.role == role)


def open_as(stage: Stage, workload: Workload, role: str, sealed: bytes, **changes: Any) -> object:
    directory = stage.scene.directory
    terms = {
        "plan": directory.plan,
        "policy": parse_result_policy(directory.result_policy),
        "session": workload.live.state.session,
        "run": 1,
        "view": "summary",
        "role": role,
        **changes,
    }
    return open_view(sealed, stage.side(role).keys.recipient_key, **terms)


@ATTACKS.add(
    "view-of-another-role", by=EVALUATOR, error=ReleaseRefused, code="release_sealed_invalid"
)
def view_of_another_role(stage: Stage) -> Step:
    workload, sealed = sealed_view(stage, OWNER_ROLE)
    return lambda: open_as(stage, workload, EVALUATOR_ROLE, sealed)


@ATTACKS.add("view-of-another-run", by=HOST, error=ReleaseRefused, code="release_sealed_invalid")
def view_of_another_run(stage: Stage) -> Step:
    """An old result shown as that of a new run."""
    workload, sealed = sealed_view(stage, EVALUATOR_ROLE)
    assert open_as(stage, workload, EVALUATOR_ROLE, sealed)
    return lambda: open_as(stage, workload, EVALUATOR_ROLE, sealed, run=2)


@ATTACKS.add("view-altered", by=HOST, error=ReleaseRefused, code="release_sealed_invalid")
def view_altered(stage: Stage) -> Step:
    workload, sealed = sealed_view(stage, EVALUATOR_ROLE)
    altered = sealed[:-20] + bytes([sealed[-20] ^ 1]) + sealed[-19:]
    return lambda: open_as(stage, workload, EVALUATOR_ROLE, altered)
