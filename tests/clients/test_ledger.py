"""The run ledger: no crash and no race ever makes one run more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from enclave.clients.party.errors import StateRefused
from enclave.clients.party.ledger import Ledger, RecordedRun
from enclave.core.errors import GrantRefused
from tests.clients.conftest import NOW

PLAN = "ab" * 32


def record(ledger: Ledger, session: str, *, max_runs: int = 2, plan: str = PLAN) -> RecordedRun:
    def make(run: int) -> Mapping[str, bytes]:
        return {"suite": b"s%d" % run, "bundle": b"b%d" % run}

    return ledger.record_run(
        plan=plan, session=session, evidence="cd" * 32, max_runs=max_runs, now=NOW, make_grants=make
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Ledger.create(tmp_path / "ledger.sqlite"):
        pass
    return tmp_path / "ledger.sqlite"


def test_runs_are_counted_and_refused_past_the_limit(path: Path) -> None:
    with Ledger(path) as ledger:
        assert record(ledger, "01").run == 1
        assert record(ledger, "02").run == 2
        with pytest.raises(GrantRefused, match="grant_run_budget_spent"):
            record(ledger, "03")
        assert record(ledger, "04", plan="ef" * 32).run == 1
    with Ledger(path) as ledger:
        assert [run.session for run in ledger.runs(PLAN)] == ["01", "02"]


def test_the_same_session_gets_the_same_bytes(path: Path) -> None:
    with Ledger(path) as ledger:
        first = record(ledger, "01", max_runs=1)
        again = record(ledger, "01", max_runs=1)
        assert again == first
        assert first.sent == frozenset()
        ledger.mark_sent(PLAN, 1, "suite", NOW)
        assert ledger.runs(PLAN)[0].sent == {"suite"}


def test_a_grant_that_can_not_be_made_spends_nothing(path: Path) -> None:
    def fail(_run: int) -> Mapping[str, bytes]:
        raise GrantRefused("grant_not_appraised")

    with Ledger(path) as ledger:
        with pytest.raises(GrantRefused, match="grant_not_appraised"):
            ledger.record_run(
                plan=PLAN, session="01", evidence="", max_runs=1, now=NOW, make_grants=fail
            )
        assert ledger.runs(PLAN) == ()
        assert record(ledger, "01", max_runs=1).run == 1


def test_a_lost_or_foreign_ledger_is_not_begun_anew(path: Path) -> None:
    path.unlink()
    with pytest.raises(StateRefused, match="ledger_missing"):
        Ledger(path)
    path.write_bytes(b"")
    path.chmod(0o600)
    with pytest.raises(StateRefused, match="ledger_unusable"):
        Ledger(path)
    path.write_bytes(b"not a database at all" * 200)
    with pytest.raises(StateRefused, match="ledger_unusable"):
        Ledger(path)


def test_a_held_ledger_is_a_typed_refusal(path: Path) -> None:
    with Ledger(path) as holder, Ledger(path, wait_seconds=0.1) as other:

        def wait(_run: int) -> Mapping[str, bytes]:
            with pytest.raises(StateRefused, match="ledger_unavailable"):
                record(other, "02")
            return {"model": b"m"}

        holder.record_run(
            plan=PLAN, session="01", evidence="", max_runs=1, now=NOW, make_grants=wait
        )


CRASH = textwrap.dedent(
    """
    import os, signal, sys
    from datetime import UTC, datetime
    from pathlib import Path
    from enclave.clients.party.ledger import Ledger

    moment, path, session = sys.argv[1:]

    def make(run):
        if moment == "while_recording":
            os.kill(os.getpid(), signal.SIGKILL)
        return {"model": b"grant of run %d" % run}

    with Ledger(Path(path)) as ledger:
        run = ledger.record_run(plan="ab" * 32, session=session, evidence="cd" * 32,
                                max_runs=2, now=datetime.now(UTC), make_grants=make)
        if moment == "before_sending":
            os.kill(os.getpid(), signal.SIGKILL)
        sys.stdout.write(f"SENT {run.run}\\n"); sys.stdout.flush()
        if moment == "after_sending":
            os.kill(os.getpid(), signal.SIGKILL)
        ledger.mark_sent("ab" * 32, run.run, "model", datetime.now(UTC))
    """
)


def crash(path: Path, moment: str, session: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CRASH, moment, str(path), session],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_kill_between_record_and_send_never_makes_a_run_more(path: Path) -> None:
    # Killed with the transaction open: nothing was granted, nothing is spent.
    assert crash(path, "while_recording", "01").returncode == -signal.SIGKILL
    with Ledger(path) as ledger:
        assert ledger.runs(PLAN) == ()

    # Killed after the record: the run is spent although nothing was sent.
    killed = crash(path, "before_sending", "01")
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "")
    with Ledger(path) as ledger:
        (run,) = ledger.runs(PLAN)
        assert (run.run, run.sent) == (1, frozenset())
        body = run.grants["model"]

    # The same session: the same run and the same bytes, as often as it is tried.
    killed = crash(path, "after_sending", "01")
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "SENT 1\n")
    with Ledger(path) as ledger:
        assert ledger.runs(PLAN)[0].grants["model"] == body

    # Another session: the next run, and after it the limit stands.
    assert crash(path, "never", "02").stdout == "SENT 2\n"
    refused = crash(path, "never", "03")
    assert refused.returncode == 1
    assert "grant_run_budget_spent" in refused.stderr
    with Ledger(path) as ledger:
        assert len(ledger.runs(PLAN)) == 2


def test_two_processes_race_for_the_last_run(path: Path) -> None:
    for attempt in range(5):
        ledger_path = path.with_name(f"race{attempt}.sqlite")
        with Ledger.create(ledger_path) as ledger:
            record(ledger, "first", max_runs=2)
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", CRASH, "never", str(ledger_path), f"racer{index}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for index in range(2)
        ]
        said = [racer.communicate(timeout=60) for racer in racers]
        assert sorted(out for out, _ in said) == ["", "SENT 2\n"]
        assert sum("grant_run_budget_spent" in err for _, err in said) == 1
        with Ledger(ledger_path) as ledger:
            assert len(ledger.runs(PLAN)) == 2


def test_the_ledger_is_its_owners_alone(path: Path) -> None:
    assert os.stat(path).st_mode & 0o777 == 0o600
