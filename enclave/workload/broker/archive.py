"""What the broker keeps on disk between starts: nothing secret, nothing trusted.

    STATE/plans/<plan>/approval-<role>.json   signed approvals, verified again when read
    STATE/plans/<plan>/runs                   one line a spent run, appended before secrets open
    STATE/plans/<plan>/<run>/receipt.json     the receipt
    STATE/plans/<plan>/<run>/<view>-<role>    a view, sealed to its recipient

The host can alter or roll back all of it: approvals and receipts are signed,
views are sealed, and the count of runs is enforced by each party's own ledger.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from enclave.core.errors import RunRefused, SessionRefused
from enclave.core.release import SealedView
from enclave.core.vocabulary import APPROVING_ROLES

_RUN_NAME = re.compile(r"[1-9][0-9]{0,5}\Z", re.ASCII)
_MAX_RUNS_BYTES = 1024 * 1024
_MAX_FILE = 64 * 1024 * 1024
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class PlanArchive:
    """The archive of one plan."""

    def __init__(self, state: Path, plan: str) -> None:
        self._folder = state / "plans" / plan
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def spent_runs(self) -> int:
        """The highest run number that was spent.

        A torn last line counts: when in doubt a run was spent. Raises RunRefused
        `run_ledger_malformed` for anything that was never written here.
        """
        try:
            data = _read(self._folder / "runs", _MAX_RUNS_BYTES)
        except FileNotFoundError:
            return 0
        highest = 0
        *lines, torn = data.split(b"\n")
        for line in lines:
            if not line.isdigit() or len(line) > 6:
                raise RunRefused("run_ledger_malformed", expected="run numbers, one a line")
            highest = max(highest, int(line))
        return highest + 1 if torn else highest

    def spend_run(self, run: int) -> None:
        """Record durably that a run is spent. Call it before anything opens.

        Raises RunRefused `run_not_recorded`.
        """
        try:
            descriptor = os.open(self._folder / "runs", _APPEND, 0o600)
            try:
                # A torn line is ended first: it must not run together with this number.
                size = os.fstat(descriptor).st_size
                torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                os.write(descriptor, (b"\n" if torn else b"") + f"{run}\n".encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            _sync(self._folder)
        except OSError:
            raise RunRefused(
                "run_not_recorded", expected="a durable record of the run", hint="free disk space"
            ) from None

    def keep_approval(self, role: str, envelope: bytes) -> None:
        """Keep an approval, so that a restart does not ask for it again."""
        write_state_file(self._folder / f"approval-{role}.json", envelope)

    def kept_approvals(self) -> Iterable[tuple[str, bytes]]:
        """Approvals found on disk, unverified."""
        for role in APPROVING_ROLES:
            try:
                yield role, _read(self._folder / f"approval-{role}.json", _MAX_FILE)
            except FileNotFoundError:
                continue

    def keep_run(self, run: int, views: Iterable[SealedView], receipt: bytes) -> None:
        """Keep what a run released; the receipt comes last."""
        folder = self._folder / str(run)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            raise _write_failed() from None
        for view in views:
            write_state_file(folder / f"{view.view}-{view.role}", view.sealed)
        write_state_file(folder / "receipt.json", receipt)
        _sync(self._folder)

    def last_finished_run(self) -> int:
        """The highest run with a receipt, 0 if none."""
        runs = [
            int(entry.name)
            for entry in self._folder.iterdir()
            if _RUN_NAME.match(entry.name) and (entry / "receipt.json").is_file()
        ]
        return max(runs, default=0)

    def receipt(self, run: int) -> bytes:
        """The receipt of a run; SessionRefused `run_unknown`."""
        return self._kept(run, "receipt.json", "run_unknown", "a finished run")

    def view(self, run: int, view: str, role: str) -> bytes:
        """A sealed view; SessionRefused `run_unknown` or `view_unknown`."""
        self.receipt(run)
        return self._kept(run, f"{view}-{role}", "view_unknown", "a view of the plan")

    def _kept(self, run: int, name: str, code: str, expected: str) -> bytes:
        try:
            return _read(self._folder / str(run) / name, _MAX_FILE)
        except OSError:
            raise SessionRefused(code, expected=expected, got=f"run {run}") from None


def _read(path: Path, limit: int) -> bytes:
    # Not blocking: the host can lay a pipe there, which would hold the plan's lock for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise RunRefused("archive_not_a_file", expected=f"{path.name}: a plain file")
        return file.read(limit)


def write_state_file(path: Path, data: bytes) -> None:
    """Replace a file of the state directory whole or not at all; durable on return.

    What the host laid in its place is never followed or written into.  RunRefused
    `archive_write_failed`.
    """
    fresh = path.with_name(f"{path.name}.new")
    try:
        # A link, or a second name of another file, is taken away, not written through.
        fresh.unlink(missing_ok=True)
        descriptor = os.open(
            fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        _sync(path.parent)
    except OSError:
        raise _write_failed() from None


def _write_failed() -> RunRefused:
    return RunRefused(
        "archive_write_failed", expected="room on the workload's disk", hint="free disk space"
    )


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
