"""Progress of eval code, as the parties may see it: one fixed sequence, at fixed times.

The eval code writes the frames, and everybody may watch.  What it could choose
is therefore taken away: the steps are always `evaluate` 1 to 20, each once and
in order, in refused runs also.  Steps move, and a run ends, only at multiples
of a fixed time; which multiple is all that is left to choose, and that is said
in docs/spec/result-policy.md.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

PROGRESS_STEPS: Final = 20
PROGRESS_SECONDS: Final = 2.0
STAGE: Final = "evaluate"


class SteadyProgress:
    """Turns frames of the eval code into the fixed sequence."""

    def __init__(self, post: Callable[[str, int, int], None]) -> None:
        self._post = post
        self._reached = 0
        self._posted = 0

    def accept(self, message: Mapping[str, Any]) -> None:
        """One frame {"op":"progress","done","total"}; anything else is ignored."""
        done, total = message.get("done"), message.get("total")
        if set(message) != {"op", "done", "total"} or message["op"] != "progress":
            return
        if type(done) is not int or type(total) is not int or not 0 <= done <= total:
            return
        # The last step belongs to the end of the compartment, not to a frame.
        steps = PROGRESS_STEPS * done // total if total else 0
        self._reached = max(self._reached, min(steps, PROGRESS_STEPS - 1))

    def move(self) -> None:
        """Post every step up to what was reached."""
        self._move_to(self._reached)

    def finish(self) -> None:
        """Post what is left of the sequence."""
        self._move_to(PROGRESS_STEPS)

    def _move_to(self, steps: int) -> None:
        while self._posted < steps:
            self._posted += 1
            self._post(STAGE, self._posted, PROGRESS_STEPS)


@contextlib.contextmanager
def paced(progress: SteadyProgress, seconds: float = PROGRESS_SECONDS) -> Iterator[None]:
    """Move `progress` at multiples of `seconds`; the block's end waits for the next one."""
    started = time.monotonic()
    stop = threading.Event()

    def wait_for_tick() -> bool:
        return stop.wait(seconds - (time.monotonic() - started) % seconds)

    def tick() -> None:
        while not wait_for_tick():
            progress.move()

    ticker = threading.Thread(target=tick, name="progress", daemon=True)
    ticker.start()
    try:
        yield
    finally:
        stop.set()
        ticker.join()
        stop.clear()
        wait_for_tick()
        progress.finish()
