"""The workload verifies both parties, and refuses to look like production when it is simulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from enclave.cli.demo_processes import run_command
from enclave.core.errors import Refusal
from tests.e2e.evaluation import POLICIES, Evaluation, Workload

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Evaluation:
    """The plan asks the evaluator for simulated evidence of its own."""
    root = tmp_path_factory.mktemp("both")
    values = root / "device.json"
    run_command("attest", "reference-values", "--kind", "simulated", "--out", str(values))
    policy = str(POLICIES / "unsafe_simulated.json")
    demand = ("--party-evidence", "evaluator", "simulated", policy, str(values))
    evaluation = Evaluation(root, model=tiny_model, more_plan=demand)
    evaluation.prepare()
    return evaluation


def refused(call, code: str) -> None:
    with pytest.raises(Refusal) as refusal:
        call()
    assert refusal.value.code == code


def test_party_evidence_decides_over_the_run(asking: Evaluation) -> None:
    state = str(asking.party("evaluator"))
    device = run_command("attest", "device", "--kind", "simulated", "--state", state)
    with asking.serve() as workload:
        for party in ("owner", "evaluator"):
            asking.call(workload, party, "upload")
        refused(lambda: asking.call(workload, "evaluator", "grant"), "grant_evidence_not_shown")
        refused(lambda: asking.call(workload, "evaluator", "evidence"), "trust_root_missing")
    with asking.serve("--party-roots", device["root"]) as workload:
        asking.call(workload, "evaluator", "evidence")
        for party in ("owner", "evaluator"):
            asking.call(workload, party, "grant")
        asking.run(workload)
        both = asking.root / "both.pem"
        both.write_bytes(workload.roots.read_bytes() + Path(device["root"]).read_bytes())
        workload.roots = both
        result = asking.call(workload, "owner", "result")
    assert result["audit"]["verdict"] == "verified"
    checks = run_command("audit", result["receipt"])["checks"]
    names = [f"{check['stage']} {check['name']}" for check in checks]
    assert any("party_evidence" in name and "evaluator" in name for name in names), names


def test_a_simulated_workload_is_no_production(asking: Evaluation) -> None:
    with pytest.raises(AssertionError, match="attester_simulated"):
        Workload(asking, ("--production",))


def test_two_workloads_never_share_a_directory(asking: Evaluation) -> None:
    with asking.serve(), pytest.raises(AssertionError, match="workload_running"):
        Workload(asking, ())
