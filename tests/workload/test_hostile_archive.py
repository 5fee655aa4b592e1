"""What a host lays into the state directory: never followed, never waited for, never counted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from enclave.core.errors import RunRefused
from enclave.workload.broker.archive import PlanArchive, write_state_file
from tests.workload.archive_crash import PLAN, RECEIPT, VIEWS


@pytest.fixture
def archive(tmp_path: Path) -> PlanArchive:
    return PlanArchive(tmp_path, PLAN)


@pytest.mark.parametrize("name", ["ready.json", "ready.json.new"])
@pytest.mark.parametrize("how", ["symlink", "hard link"])
def test_a_state_file_is_not_written_through_a_link(tmp_path: Path, name: str, how: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"kept")
    if how == "symlink":
        (tmp_path / name).symlink_to(victim)
    else:
        (tmp_path / name).hardlink_to(victim)
    write_state_file(tmp_path / "ready.json", b"{}")
    assert victim.read_bytes() == b"kept"
    assert (tmp_path / "ready.json").read_bytes() == b"{}"
    assert not (tmp_path / "ready.json").is_symlink()


@pytest.mark.timeout(20)
def test_a_pipe_in_a_files_place_is_refused_and_not_waited_for(
    archive: PlanArchive, tmp_path: Path
) -> None:
    folder = tmp_path / "plans" / PLAN
    for name in ("runs", "approval-evaluator.json"):
        os.mkfifo(folder / name)
    for read in (archive.spent_runs, lambda: list(archive.kept_approvals())):
        with pytest.raises(RunRefused) as caught:
            read()
        assert caught.value.code == "archive_not_a_file"


@pytest.mark.parametrize("name", ["²", "0", "01", "9" * 200, "1234567"])
def test_folders_nobody_made_are_no_runs(archive: PlanArchive, tmp_path: Path, name: str) -> None:
    archive.spend_run(1)
    archive.keep_run(1, VIEWS, RECEIPT)
    planted = tmp_path / "plans" / PLAN / name
    planted.mkdir()
    (planted / "receipt.json").write_bytes(RECEIPT)
    assert archive.last_finished_run() == 1
