"""What watchers see of a run that hostile eval code steers: progress and refusals."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from enclave.core.budget import REFUSAL_BITS
from enclave.core.errors import IsolationRefused, Refusal, ReleaseRefused, RunRefused
from enclave.workload.broker.outcomes import OUTCOMES, close_refusal
from enclave.workload.broker.progress import PROGRESS_STEPS, STAGE, SteadyProgress, paced

Step = tuple[str, int, int]
WHOLE = [(STAGE, step, PROGRESS_STEPS) for step in range(1, PROGRESS_STEPS + 1)]


def frame(done: Any, total: Any, **more: Any) -> dict[str, Any]:
    return {"op": "progress", "done": done, "total": total, **more}


@pytest.mark.parametrize("secret", list(itertools.product((0, 3, 19, 20), repeat=3)))
def test_every_run_shows_the_same_steps(secret: tuple[int, ...]) -> None:
    seen: list[Step] = []
    progress = SteadyProgress(lambda *step: seen.append(step))
    for number, done in enumerate(secret):
        progress.accept(frame(done, 20))
        progress.accept(frame(done, 20, stage=f"stage-{number}"))
        progress.move()
        assert seen == WHOLE[: len(seen)]
        assert len(seen) < PROGRESS_STEPS
    progress.finish()
    assert seen == WHOLE


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"op": "released", "done": 5, "total": 5},
        frame(6, 5),
        frame(-1, 5),
        frame(True, 1),
        frame("5", 5),
        frame(2.5, 5),
        frame(5, 5, views=[]),
        frame(0, 0),
    ],
)
def test_other_frames_move_nothing(message: dict[str, Any]) -> None:
    seen: list[Step] = []
    progress = SteadyProgress(lambda *step: seen.append(step))
    progress.accept(message)
    progress.move()
    assert seen == []


def test_steps_and_ends_come_at_fixed_times_only() -> None:
    started = time.monotonic()
    times: list[float] = []
    progress = SteadyProgress(lambda *_: times.append(time.monotonic() - started))
    with pytest.raises(RunRefused), paced(progress, 0.5):
        progress.accept(frame(7, 20))
        time.sleep(0.7)
        progress.accept(frame(12, 20))
        raise RunRefused("sandbox_tripwire")
    ended = time.monotonic() - started
    assert len(times) == PROGRESS_STEPS
    assert [round(moment, 1) for moment in times] == [0.5] * 7 + [1.0] * 13
    assert 1.0 <= ended < 1.2


def test_outcomes_fit_the_budget() -> None:
    assert len(OUTCOMES) <= 2**REFUSAL_BITS


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (RunRefused("sandbox_tripwire", got="ptrace, keyctl"), "sandbox_tripwire"),
        (ReleaseRefused("result_out_of_range", expected="0 to 1", got="7"), "result_out_of_range"),
        (IsolationRefused("compartment_timeout", expected="an end in 60 s"), "compartment_timeout"),
        (RunRefused("any_code_at_all", hint="of the code's choice"), "run_failed"),
        (Refusal("frame_too_large", got="7341 bytes"), "run_failed"),
    ],
)
def test_a_refusal_crosses_as_one_code_with_its_fixed_text(refusal: Refusal, code: str) -> None:
    closed = close_refusal(refusal)
    assert closed.code == code
    assert (type(closed), closed.expected) == OUTCOMES[code]
    assert (closed.got, closed.hint) == ("", "")
