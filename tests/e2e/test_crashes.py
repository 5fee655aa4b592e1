"""kill -9 for real: of the workload and of a client, in an upload and in a run."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from enclave.cli.demo_processes import command_line
from enclave.core.errors import Refusal
from tests.e2e.canaries import make_canary, search_inside, search_temporary, search_tree
from tests.e2e.conftest import AS_ROOT
from tests.e2e.evaluation import Evaluation, Workload, rows

pytestmark = pytest.mark.slow
MIB = 2**20
BALLAST = 192


@pytest.fixture
def heavy(tmp_path: Path, tiny_model: Path) -> Evaluation:
    """A suite that takes a moment to upload."""
    ballast = {"ballast.bin": os.urandom(BALLAST * MIB)}
    evaluation = Evaluation(tmp_path, model=tiny_model, suite_files=ballast)
    evaluation.prepare()
    return evaluation


def start_upload(evaluation: Evaluation, workload: Workload) -> subprocess.Popen:
    return subprocess.Popen(
        command_line("evaluator", "upload", *evaluation.arguments(workload, "evaluator"), "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def await_durable(evaluation: Evaluation, upload: subprocess.Popen) -> None:
    """Until some, not all, of the suite is in the workload's journal."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        data = list((evaluation.workload / "broker" / "uploads").glob("*/suite/data/*"))
        if sum(path.stat().st_size for path in data) > 40 * MIB:
            return
        assert upload.poll() is None, "the upload ended before it could be interrupted"
        time.sleep(0.002)
    raise AssertionError("nothing arrived")


def assert_resumed(report: dict) -> None:
    suite = report["uploads"]["suite"]
    total = suite["sent_segments"] + suite["skipped_segments"]
    assert total >= BALLAST
    assert suite["skipped_segments"] >= 16, "what was acknowledged is not sent again"
    assert suite["sent_segments"] < total


def test_workload_killed_in_an_upload(heavy: Evaluation) -> None:
    with heavy.serve() as workload:
        upload = start_upload(heavy, workload)
        await_durable(heavy, upload)
        workload.kill()
        _, errors = upload.communicate(timeout=120)
        assert upload.returncode != 0
        assert b"Traceback" not in errors
    with heavy.serve() as workload:
        assert_resumed(heavy.call(workload, "evaluator", "upload"))
        again = heavy.call(workload, "evaluator", "upload")["uploads"]["suite"]
        assert again["sent_segments"] == 0


def test_client_killed_in_an_upload(heavy: Evaluation) -> None:
    with heavy.serve() as workload:
        upload = start_upload(heavy, workload)
        await_durable(heavy, upload)
        os.killpg(upload.pid, signal.SIGKILL)
        upload.wait()
        assert_resumed(heavy.call(workload, "evaluator", "upload"))


def test_workload_killed_in_a_run(tmp_path: Path, tiny_model: Path) -> None:
    """No secret stays on disk, the run is spent, the next one works."""
    started = time.time()
    canary = make_canary("prompt")
    prompts = rows(12, pause=0.5)
    prompts[0]["prompt"] += canary
    evaluation = Evaluation(tmp_path, model=tiny_model, prompts=prompts, max_runs=2)
    evaluation.prepare()
    with evaluation.serve() as workload:
        evaluation.upload_and_grant(workload)
        command = command_line("run", *evaluation.arguments(workload, "owner"), "--json")
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        await_spent(evaluation, 1)
        await_open(workload, canary)
        workload.kill()
        running.communicate(timeout=60)
        assert running.returncode != 0
    assert search_tree(evaluation.workload, [canary]) == []
    assert search_temporary(started, [canary], skip=tmp_path) == []
    assert not [mount for mount in mounts() if str(tmp_path) in mount]
    with evaluation.serve() as workload:
        with pytest.raises(Refusal) as refusal:
            evaluation.run(workload)
        assert refusal.value.code == "run_not_ready", "keys do not outlive the workload"
        for party in ("owner", "evaluator"):
            sent = evaluation.call(workload, party, "upload")["uploads"]
            assert all(report["sent_segments"] == 0 for report in sent.values())
            evaluation.call(workload, party, "grant")
        evaluation.run(workload)
        result = evaluation.call(workload, "evaluator", "result")
        assert result["run"] == 2, "the killed run stays spent"
        with pytest.raises(Refusal) as refusal:
            evaluation.call(workload, "owner", "grant")
        assert refusal.value.code == "grant_run_budget_spent"


def await_spent(evaluation: Evaluation, run: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for path in (evaluation.workload / "broker" / "plans").glob("*/runs"):
            if path.read_text().split()[-1:] == [str(run)]:
                return
        time.sleep(0.05)
    raise AssertionError("the run was never recorded")


def await_open(workload: Workload, canary: str) -> None:
    """Until the prompts are open in memory; another user's memory can be seen only as root."""
    if not AS_ROOT:
        time.sleep(5)
        return
    end = time.monotonic() + 60
    while not search_inside(workload.descendants(), [canary]):
        assert time.monotonic() < end, "the prompts never opened"
        time.sleep(0.1)


def mounts() -> list[str]:
    return Path("/proc/self/mounts").read_text().splitlines()
