"""A process that is killed at the n-th system call of its archive, for every n.

    python -m tests.workload.archive_crash FOLDER

prints one JSON line a crash: what the child said before it died.  Each child is forked,
counts its own C calls that reach the disk, and sends itself SIGKILL right before one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from enclave.core.release import SealedView
from enclave.workload.broker.archive import PlanArchive

PLAN = "ab" * 32
VIEWS = (
    SealedView("summary", "model_owner", b"o" * 9000),
    SealedView("summary", "evaluator", b"e" * 9000),
)
RECEIPT = b"r" * 20000
CALLS = frozenset({"open", "write", "flush", "fsync", "close", "replace", "mkdir", "fdopen"})


def work(folder: Path, kill_before: int, say: int) -> None:
    """Spend a run and keep it, as the broker does; says what came back."""
    archive = PlanArchive(folder, PLAN)
    calls = 0

    def count(_frame: FrameType, event: str, called: Any) -> None:
        nonlocal calls
        if event == "c_call" and getattr(called, "__name__", "") in CALLS:
            calls += 1
            if calls == kill_before:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    run = archive.spent_runs() + 1
    archive.spend_run(run)
    os.write(say, b"s")
    archive.keep_run(run, VIEWS, RECEIPT)
    os.write(say, b"k")
    sys.setprofile(None)


def main(root: Path) -> None:
    for kill_before in range(1, 200):
        folder = root / str(kill_before)
        hear, say = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(hear)
            work(folder, kill_before, say)
            os._exit(0)
        os.close(say)
        _, status = os.waitpid(child, 0)
        said = os.read(hear, 16).decode()
        os.close(hear)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print(json.dumps({"folder": str(folder), "said": said, "killed": killed}), flush=True)
        if not killed:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
