"""Progress of runs for many watchers: stages and counts, nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from enclave.core.errors import Refusal, SessionRefused
from enclave.wire.messages import WATCH_SECONDS, Progress


class ProgressBoard:
    """The progress of one run; many threads may watch it."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._steps: list[Progress] = []

    def post(self, stage: str, done: int, total: int) -> None:
        """A step of the running run. Several steps of one stage are kept as the last one."""
        self._add(Progress(stage, done, total, "running"))

    def finish(self) -> None:
        """The run released its result."""
        self._add(Progress("finished", 1, 1, "finished"))

    def refuse(self, refusal: Refusal) -> None:
        """The run ended without one."""
        self._add(Progress("refused", 1, 1, "refused", refusal.as_json()))

    @property
    def ended(self) -> bool:
        """Whether the last step was posted."""
        return bool(self._steps) and self._steps[-1].state != "running"

    def watch(self) -> Iterator[Progress]:
        """Every step until the end; at least one item each `WATCH_SECONDS`."""
        position = 0
        last = Progress("waiting", 0, 0, "running")
        while True:
            with self._change:
                self._change.wait_for(lambda p=position: len(self._steps) > p, WATCH_SECONDS)  # type: ignore[misc]
                fresh = self._steps[position:]
            position += len(fresh)
            yield from fresh
            if fresh:
                last = fresh[-1]
                if last.state != "running":
                    return
            else:
                yield last

    def _add(self, progress: Progress) -> None:
        with self._change:
            if self.ended:
                raise SessionRefused("run_ended", expected="a running run")
            self._steps.append(progress)
            self._change.notify_all()
