"""The party's own ledger of runs: a grant is written down before it is sent.

The ledger, not the enclave, is what holds a party to `max_runs`: a run counts
from the moment it is recorded, whether or not its grant ever arrived.  A
grant that was recorded and perhaps not sent can be sent again, the very same
bytes to the very same session, so a crash never costs a run and never makes
one more.

SQLite, exclusive transactions, `synchronous=EXTRA` (FULL and the directory
entry of the journal): two processes that race for the last run can not both
have it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from enclave.clients.party.errors import StateRefused
from enclave.clients.party.state import refuse_open_permissions, sync_directory
from enclave.core.errors import GrantRefused
from enclave.core.times import print_time

_FORMAT = 1
_LOST_LEDGER = "restore it from the newest copy; a new one would forget the runs already spent"
_SCHEMA = """
CREATE TABLE runs (
    plan TEXT NOT NULL,
    run INTEGER NOT NULL CHECK (run >= 1),
    session TEXT NOT NULL,
    evidence TEXT NOT NULL,
    recorded TEXT NOT NULL,
    PRIMARY KEY (plan, run),
    UNIQUE (plan, session)
) STRICT;
CREATE TABLE grants (
    plan TEXT NOT NULL,
    run INTEGER NOT NULL,
    artifact TEXT NOT NULL,
    body BLOB NOT NULL,
    sent TEXT,
    PRIMARY KEY (plan, run, artifact),
    FOREIGN KEY (plan, run) REFERENCES runs (plan, run)
) STRICT;
"""


@dataclass(frozen=True)
class RecordedRun:
    """One run this party has spent on a plan."""

    plan: str
    run: int
    session: str
    evidence: str
    recorded: str
    grants: Mapping[str, bytes]
    sent: frozenset[str]
    """Artifacts whose grant the enclave acknowledged."""


class Ledger:
    """The ledger of one state directory. Use as a context manager.

    Raises StateRefused: `ledger_missing` (a lost ledger is never begun anew: it would
    forget the runs already spent), `ledger_unusable`, `ledger_unavailable`.
    """

    def __init__(self, path: Path, *, wait_seconds: float = 20.0) -> None:
        if not os.path.lexists(path):
            raise StateRefused(
                "ledger_missing", expected=f"{path.name}, made by keygen", hint=_LOST_LEDGER
            )
        refuse_open_permissions(os.lstat(path), path)
        try:
            self._connection = sqlite3.connect(path, timeout=wait_seconds, isolation_level=None)
            self._connection.execute("PRAGMA synchronous=EXTRA")
            self._connection.execute("PRAGMA foreign_keys=ON")
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError:
            version = -1
        if version != _FORMAT:
            raise StateRefused(
                "ledger_unusable",
                expected=f"{path.name}: a run ledger of format {_FORMAT}",
                hint=_LOST_LEDGER,
            )

    @classmethod
    def create(cls, path: Path) -> Ledger:
        """Begin an empty ledger (keygen does, once)."""
        os.close(
            os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        )
        connection = sqlite3.connect(path, isolation_level=None)
        with closing(connection):
            connection.execute("PRAGMA synchronous=EXTRA")
            connection.execute("BEGIN EXCLUSIVE")
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_FORMAT:d}")
            connection.execute("COMMIT")
        sync_directory(path.parent)
        return cls(path)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._connection.close()

    def record_run(
        self,
        *,
        plan: str,
        session: str,
        evidence: str,
        max_runs: int,
        now: datetime,
        make_grants: Callable[[int], Mapping[str, bytes]],
    ) -> RecordedRun:
        """Record the next run and its grants, or give back the run this session already has.

        `make_grants` gets the run's number and returns grant bytes by artifact.
        Nothing is recorded when it raises.
        Raises GrantRefused: `grant_run_budget_spent`.
        """
        with self._exclusive():
            known = self._find(plan, session)
            if known is not None:
                return known
            run = self.refuse_spent(plan, max_runs) + 1
            grants = make_grants(run)
            self._connection.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?, ?)",
                (plan, run, session, evidence, print_time(now)),
            )
            self._connection.executemany(
                "INSERT INTO grants VALUES (?, ?, ?, ?, NULL)",
                [(plan, run, artifact, body) for artifact, body in sorted(grants.items())],
            )
            recorded = self._find(plan, session)
        if recorded is None:  # pragma: no cover - the row was inserted above
            raise StateRefused("ledger_unusable", expected="the run just recorded")
        return recorded

    def refuse_spent(self, plan: str, max_runs: int) -> int:
        """The number of runs recorded; at the limit GrantRefused `grant_run_budget_spent`."""
        (spent,) = self._connection.execute(
            "SELECT coalesce(max(run), 0) FROM runs WHERE plan = ?", (plan,)
        ).fetchone()
        if spent >= max_runs:
            raise GrantRefused(
                "grant_run_budget_spent",
                expected=f"at most {max_runs} runs of this plan",
                got=f"{spent} already granted",
                hint="agree on a new plan for further runs",
            )
        return int(spent)

    def mark_sent(self, plan: str, run: int, artifact: str, now: datetime) -> None:
        """Write down that the enclave acknowledged a grant."""
        with self._exclusive():
            self._connection.execute(
                "UPDATE grants SET sent = ? WHERE plan = ? AND run = ? AND artifact = ?",
                (print_time(now), plan, run, artifact),
            )

    def runs(self, plan: str) -> tuple[RecordedRun, ...]:
        """Every run recorded for a plan, oldest first."""
        rows = self._connection.execute(
            "SELECT session FROM runs WHERE plan = ? ORDER BY run", (plan,)
        ).fetchall()
        found = (self._find(plan, session) for (session,) in rows)
        return tuple(run for run in found if run is not None)

    def _find(self, plan: str, session: str) -> RecordedRun | None:
        row = self._connection.execute(
            "SELECT run, evidence, recorded FROM runs WHERE plan = ? AND session = ?",
            (plan, session),
        ).fetchone()
        if row is None:
            return None
        run, evidence, recorded = row
        grants = self._connection.execute(
            "SELECT artifact, body, sent FROM grants WHERE plan = ? AND run = ?", (plan, run)
        ).fetchall()
        return RecordedRun(
            plan=plan,
            run=run,
            session=session,
            evidence=evidence,
            recorded=recorded,
            grants={artifact: body for artifact, body, _ in grants},
            sent=frozenset(artifact for artifact, _, sent in grants if sent is not None),
        )

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN EXCLUSIVE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StateRefused(
                "ledger_unavailable",
                expected="a run ledger that can be written",
                got=getattr(error, "sqlite_errorname", type(error).__name__),
                hint="another command may hold it, or the disk is full; nothing was granted",
            ) from None
