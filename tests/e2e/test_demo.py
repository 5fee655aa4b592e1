"""The README's first command: the real model, its numbers against a plain loop, its receipt."""

from __future__ import annotations

import json
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from enclave.cli.demo_assets.model import default_cache, prepare_model
from enclave.cli.demo_assets.plain_loop import PlainLoop
from enclave.cli.demo_processes import command_line, run_command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
STAGES = [
    *("assets", "keygen", "seal", "plan", "approve", "serve"),
    *("upload", "grant", "run", "result", "audit"),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("demo") / "run"
    command = command_line("demo", "--short", "--json", "--out", str(out))
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_ends_with_one_object(told: dict[str, Any]) -> None:
    assert [row["stage"] for row in told["stages"]] == STAGES
    assert all(row["seconds"] >= 0 for row in told["stages"])
    assert Path(told["receipt"]).is_file()
    assert set(told["releases"]) == {"owner", "evaluator"}
    assert told["releases"]["owner"] == told["releases"]["evaluator"]


def test_released_numbers_are_those_of_a_plain_loop(told: dict[str, Any]) -> None:
    plain = PlainLoop(prepare_model(default_cache()), threads=1).run(
        Path(told["directory"]) / "suite"
    )
    released = told["releases"]["owner"]["summary"]
    assert Fraction(released["truthfulqa_mc1_accuracy"]) == plain.truthfulqa_mc1_accuracy
    assert Fraction(released["arithmetic_accuracy"]) == plain.arithmetic_accuracy
    assert plain.items == 40


def test_audit_lists_every_check_and_exits_zero(told: dict[str, Any]) -> None:
    verdict = run_command("audit", told["receipt"])
    assert verdict["verdict"] == "verified"
    assert len(verdict["checks"]) >= 25
    assert {check["state"] for check in verdict["checks"]} == {"verified"}
    assert verdict["not_proven"]


def test_receipt_holds_no_score(told: dict[str, Any]) -> None:
    text = Path(told["receipt"]).read_text()
    for view in told["releases"]["owner"].values():
        for metric in view:
            assert metric not in text
