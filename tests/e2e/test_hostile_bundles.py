"""Eval code that works against both parties, in whole runs in real compartments."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from enclave.cli.demo_processes import command_line
from enclave.core.errors import Refusal
from tests.e2e.evaluation import BUNDLE, Evaluation, Workload

pytestmark = pytest.mark.slow

WALL_SECONDS = 20
PREFACE = """
import array, ctypes, json, os, socket, struct, time

RESULT = {
    "metrics": {
        "accuracy": {"value": "0.5", "n": 12},
        "baseline": {"value": "0.5", "n": 12},
    },
    "controls": {"null_answer": "0", "oracle": "1"},
    "completed": 12,
    "failed": 0,
}


def send(descriptor, message, cut=None):
    body = json.dumps(message, separators=(",", ":"), sort_keys=True).encode()
    end = socket.socket(fileno=descriptor)
    end.sendall((struct.pack(">I", len(body)) + body)[:cut])
    end.detach()


def evaluate(suite, model, report):
"""
WRITES_WITH_PROGRESS = """
    for secret in (3, 1, 4, 1, 5, 9, 2, 6):
        frame = {"op": "progress", "stage": f"s{secret}", "done": secret, "total": 20}
        send(4, frame)
        send(4, {"op": "progress", "done": secret, "total": 20})
        send(4, {"op": "released", "views": [], "done": 1, "total": 1})
    return RESULT
"""
TRIPS_AFTER_ITS_RESULT = """
    send(5, RESULT)
    time.sleep(0.5)
    ends = time.time() + 1
    for call in (101, 165, 250, 425):  # ptrace, mount, keyctl, io_uring_setup
        if os.fork() == 0:
            while time.time() < ends:
                pass
            ctypes.CDLL(None).syscall(call, 0, 0, 0, 0)
            os._exit(0)
    time.sleep(60)
"""
SENDS_DESCRIPTORS = """
    ends = os.pipe()
    control = socket.socket(fileno=4)
    rights = array.array("i", ends * 50).tobytes()
    control.sendmsg([struct.pack(">I", 2)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    control.detach()
    time.sleep(60)
"""
NEVER_ENDS = """
    send(5, RESULT, cut=20)
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            time.sleep(3600)
    time.sleep(3600)
"""
HOLDS_THE_GATE = """
    RESULT["controls"]["oracle"] = "-" + "0" * 60000 + "1"
    send(5, RESULT)
    os._exit(0)
"""
TWO_RESULTS = """
    send(5, RESULT)
    send(5, RESULT)
    os.close(4)
    if os.fork() == 0:
        time.sleep(3600)
    os._exit(77)
"""


def run_code(root: Path, code: str, model: Path) -> tuple[Any, float]:
    """Run it; the stages that watchers saw or the refusal, and how long the command took."""
    bundle = root / "bundle"
    bundle.mkdir()
    (bundle / "bundle.toml").write_bytes((BUNDLE / "bundle.toml").read_bytes())
    (bundle / "score.py").write_text(PREFACE + code)
    limits = ("--set", f"limits.wall_seconds={WALL_SECONDS}")
    evaluation = Evaluation(root, bundle=bundle, model=model, settings=limits)
    evaluation.prepare()
    with evaluation.serve() as workload:
        evaluation.upload_and_grant(workload)
        idle = len(workload.descendants())
        started = time.monotonic()
        try:
            outcome = evaluation.run(workload)["stages"]
        except Refusal as refusal:
            outcome = refusal
        seconds = time.monotonic() - started
        # The gate's compartment went with its session; nothing else came to stay.
        assert len(workload.descendants()) <= idle
        assert workload.process.poll() is None
        if isinstance(outcome, Refusal):
            refuse_result(evaluation, workload)
    return outcome, seconds


def refuse_result(evaluation: Evaluation, workload: Workload) -> None:
    for party in ("owner", "evaluator"):
        command = command_line(party, "result", *evaluation.arguments(workload, party), "--json")
        assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    assert list(workload.broker_state.glob("plans/*/*/*")) == []


def test_progress_carries_no_message(tmp_path: Path, tiny_model: Path) -> None:
    stages, _ = run_code(tmp_path, WRITES_WITH_PROGRESS, tiny_model)
    assert stages["evaluate"] == {"done": 20, "total": 20}
    assert set(stages) == {"record", "open", "load", "evaluate", "release", "wipe", "receipt"}


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        pytest.param(TRIPS_AFTER_ITS_RESULT, "sandbox_tripwire", id="result-then-tripwire"),
        pytest.param(SENDS_DESCRIPTORS, "sandbox_killed", id="descriptors-to-the-broker"),
        pytest.param(NEVER_ENDS, "sandbox_limit_wall", id="partial-result-never-ends"),
        pytest.param(HOLDS_THE_GATE, "result_not_decimal", id="number-that-holds-the-gate"),
    ],
)
def test_no_result_and_one_fixed_refusal(
    tmp_path: Path, tiny_model: Path, code: str, outcome: str
) -> None:
    refusal, seconds = run_code(tmp_path, code, tiny_model)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.got) == (outcome, "")
    assert seconds < WALL_SECONDS + 30


def test_only_the_first_result_counts(tmp_path: Path, tiny_model: Path) -> None:
    """A second one, an odd exit status, a closed control socket and a child change nothing."""
    stages, seconds = run_code(tmp_path, TWO_RESULTS, tiny_model)
    assert stages["receipt"] == {"done": 1, "total": 1}
    assert seconds < 30
