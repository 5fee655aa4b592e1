"""The broker's archive: a run is spent before anything opens, whatever happens to the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from enclave.core.errors import Refusal, RunRefused, SessionRefused
from enclave.core.release import SealedView
from enclave.workload.broker.archive import PlanArchive
from tests.workload.archive_crash import PLAN, RECEIPT, VIEWS

RUNS = Path("plans") / PLAN / "runs"


@pytest.fixture
def archive(tmp_path: Path) -> PlanArchive:
    return PlanArchive(tmp_path, PLAN)


def refuse(kind: type[Refusal], code: str, action: Callable[[], object]) -> None:
    with pytest.raises(kind) as caught:
        action()
    assert caught.value.code == code


def test_an_empty_archive(archive: PlanArchive) -> None:
    assert archive.spent_runs() == 0
    assert archive.last_finished_run() == 0
    assert list(archive.kept_approvals()) == []
    refuse(SessionRefused, "run_unknown", lambda: archive.receipt(1))
    refuse(SessionRefused, "run_unknown", lambda: archive.view(1, "summary", "evaluator"))


def test_what_was_kept_is_there_after_a_restart(archive: PlanArchive, tmp_path: Path) -> None:
    for run in (1, 2):
        archive.spend_run(run)
    archive.keep_run(2, VIEWS, RECEIPT)
    archive.keep_approval("evaluator", b"envelope")
    again = PlanArchive(tmp_path, PLAN)
    assert again.spent_runs() == 2
    assert again.last_finished_run() == 2
    assert again.receipt(2) == RECEIPT
    assert again.view(2, "summary", "evaluator") == VIEWS[1].sealed
    assert list(again.kept_approvals()) == [("evaluator", b"envelope")]
    refuse(SessionRefused, "view_unknown", lambda: again.view(2, "details", "evaluator"))
    refuse(SessionRefused, "run_unknown", lambda: again.view(1, "summary", "evaluator"))


def test_only_this_user_reads_it(archive: PlanArchive, tmp_path: Path) -> None:
    archive.spend_run(1)
    archive.keep_run(1, VIEWS, RECEIPT)
    for path in tmp_path.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0 or path == tmp_path / "plans", path


@pytest.mark.parametrize(
    ("data", "spent"),
    [
        (b"", 0),
        (b"1\n", 1),
        (b"1", 1),
        (b"1\n2", 2),
        (b"1\n2\n", 2),
        (b"9\n1", 10),
        (b"3\n1\n", 3),
        (b"1\n\xff", 2),
    ],
)
def test_a_torn_last_line_counts_as_spent(
    archive: PlanArchive, tmp_path: Path, data: bytes, spent: int
) -> None:
    (tmp_path / RUNS).write_bytes(data)
    assert archive.spent_runs() == spent


@pytest.mark.parametrize("torn", [b"1", b"1\n2", b"1\n2\n1"])
def test_the_next_run_after_a_torn_line(archive: PlanArchive, tmp_path: Path, torn: bytes) -> None:
    """A half-written number must not run together with the next one."""
    (tmp_path / RUNS).write_bytes(torn)
    for _ in range(3):
        run = archive.spent_runs() + 1
        archive.spend_run(run)
        assert archive.spent_runs() == run


@pytest.mark.parametrize(
    "data", [b"\n", b"one\n", b"-1\n", b"1\n\n2\n", b"1234567\n", b"1 \n", b"\xb2\n"]
)
def test_a_ledger_nobody_wrote_is_refused(
    archive: PlanArchive, tmp_path: Path, data: bytes
) -> None:
    (tmp_path / RUNS).write_bytes(data)
    refuse(RunRefused, "run_ledger_malformed", archive.spent_runs)


def test_a_ledger_that_is_a_link_is_not_followed(archive: PlanArchive, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"")
    (tmp_path / RUNS).symlink_to(tmp_path / "elsewhere")
    with pytest.raises((Refusal, OSError)):
        archive.spent_runs()
    with pytest.raises((Refusal, OSError)):
        archive.spend_run(1)
    assert (tmp_path / "elsewhere").read_bytes() == b""


# Killed.


def test_killed_at_any_call(tmp_path: Path) -> None:
    """kill -9 before each call that reaches the disk: spent stays spent, kept is whole."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.workload.archive_crash", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    crashes = [json.loads(line) for line in done.stdout.splitlines()]
    assert not crashes[-1]["killed"]
    assert crashes[-1]["said"] == "sk"
    assert len(crashes) >= 20
    for crash in crashes:
        archive = PlanArchive(Path(crash["folder"]), PLAN)
        spent = archive.spent_runs()
        assert spent in ((1,) if "s" in crash["said"] else (0, 1)), crash
        finished = archive.last_finished_run()
        assert finished in ((1,) if "k" in crash["said"] else (0, 1)), crash
        if finished:
            assert spent == 1
            assert archive.receipt(1) == RECEIPT
            for view in VIEWS:
                assert archive.view(1, view.view, view.role) == view.sealed
        # The next run works.
        archive.spend_run(spent + 1)
        archive.keep_run(spent + 1, VIEWS, RECEIPT)
        assert archive.spent_runs() == archive.last_finished_run() == spent + 1


# Full.


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 64 KiB and 32 files."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    options = "size=64k,nr_inodes=32,mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True, timeout=20)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True, timeout=20)


def fill(folder: Path, *, files: bool = False) -> Path:
    """Use up every byte, or every file, of the disk."""
    ballast = folder / "ballast"
    ballast.mkdir()
    try:
        if files:
            for number in range(1000):
                (ballast / str(number)).touch()
        else:
            with (ballast / "bytes").open("wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 4096)
    except OSError:
        return ballast
    raise AssertionError("the disk did not fill up")


def empty(ballast: Path) -> None:
    for path in ballast.iterdir():
        path.unlink()


@pytest.mark.root
@pytest.mark.parametrize("files", [False, True], ids=["no bytes left", "no files left"])
def test_full_disk_before_the_run(small_disk: Path, files: bool) -> None:
    archive = PlanArchive(small_disk, PLAN)
    ballast = fill(small_disk, files=files)
    refuse(RunRefused, "run_not_recorded", lambda: archive.spend_run(1))
    assert archive.spent_runs() in (0, 1)
    empty(ballast)
    archive.spend_run(archive.spent_runs() + 1)
    assert archive.spent_runs() in (1, 2)


@pytest.mark.root
@pytest.mark.parametrize("files", [False, True], ids=["no bytes left", "no files left"])
def test_full_disk_after_the_run(small_disk: Path, files: bool) -> None:
    """The result can not be kept: a typed refusal, the run stays spent, older ones stay whole."""
    archive = PlanArchive(small_disk, PLAN)
    small = (SealedView("summary", "evaluator", b"e" * 900),)
    archive.spend_run(1)
    archive.keep_run(1, small, b"r" * 900)
    archive.spend_run(2)
    archive.keep_approval("evaluator", b"approval of before")
    ballast = fill(small_disk, files=files)
    refuse(RunRefused, "archive_write_failed", lambda: archive.keep_run(2, VIEWS, RECEIPT))
    refuse(
        RunRefused,
        "archive_write_failed",
        lambda: archive.keep_approval("evaluator", b"a" * 70000),
    )
    assert archive.spent_runs() == 2
    assert archive.last_finished_run() == 1
    assert archive.receipt(1) == b"r" * 900
    assert archive.view(1, "summary", "evaluator") == b"e" * 900
    assert list(archive.kept_approvals()) == [("evaluator", b"approval of before")]
    empty(ballast)
    archive.spend_run(3)
    archive.keep_run(3, small, b"s" * 900)
    assert archive.receipt(3) == b"s" * 900
