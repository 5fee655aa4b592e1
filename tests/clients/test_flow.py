"""A whole evaluation by the real commands, each its own process, against a real server."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from attestation.collect import reference_values_for_simulated
from attestation.parse.trust_roots import parse_trust_roots
from enclave.cli.exit_codes import ExitCode
from enclave.clients.party.keys import load_keys
from enclave.clients.party.ledger import Ledger
from enclave.clients.party.plan_directory import read_plan_directory
from enclave.clients.party.state import StateDirectory
from tests.clients.conftest import (
    REPOSITORY,
    clean_environment,
    command_line,
    doubleblind,
    last_json,
)
from tests.clients.trial_enclave import TrialEnclave, make_attester
from tests.clients.world import MEASUREMENT, result_policy

PARTIES = ("owner", "evaluator")


def succeed(*arguments: str | Path) -> Any:
    done = doubleblind(*arguments, "--json")
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return last_json(done)


def refuse(*arguments: str | Path, code: str, exit_code: ExitCode) -> dict[str, Any]:
    done = doubleblind(*arguments, "--json")
    error = last_json(done)["error"]
    assert (error["code"], done.returncode) == (code, exit_code), (arguments, done.stdout)
    assert error["hint"], error
    return dict(error)


@dataclass
class Stage:
    """Two parties with sealed artifacts and a plan in files."""

    root: Path

    @property
    def plan(self) -> Path:
        return self.root / "plan"

    @property
    def roots(self) -> Path:
        return self.root / "roots.pem"

    def state(self, party: str) -> tuple[str, Path]:
        return ("--state", self.root / party)

    def new_plan(self, out: Path, *extra: str | Path) -> None:
        succeed(
            "plan", "new",
            "--owner", self.root / "owner/public", "--evaluator", self.root / "evaluator/public",
            "--attestation-policy", REPOSITORY / "policies/unsafe_simulated.json",
            "--reference-values", self.root / "references.json",
            "--result-policy", self.root / "results.json",
            "--max-runs", "2", "--out", out, *extra,
        )  # fmt: skip

    def common(self, enclave: TrialEnclave, party: str) -> tuple[str | Path, ...]:
        return (
            "--plan", self.plan, "--endpoint", enclave.endpoint, "--roots", self.roots,
            *self.state(party),
        )  # fmt: skip

    def approve(self, party: str, *extra: str | Path) -> Any:
        return succeed(party, "approve", "--plan", self.plan, *self.state(party), "--yes", *extra)


def make_stage(root: Path) -> Stage:
    stage = Stage(root)
    (root / "model").mkdir(parents=True)
    (root / "model/config.json").write_text("{}")
    (root / "model/chat_template.jinja").write_text("{{ messages }}")
    (root / "model/model.safetensors").write_bytes(hashlib.sha256(b"w").digest() * 100_000)
    (root / "suite").mkdir()
    (root / "suite/items.jsonl").write_text('{"question":"secret"}\n')
    (root / "bundle").mkdir()
    (root / "bundle/bundle.toml").write_text('name = "b"\nenvironment = "python-stdlib"\n')
    (root / "bundle/score.py").write_text("def evaluate(): ...\n")
    (root / "references.json").write_bytes(reference_values_for_simulated(MEASUREMENT))
    (root / "results.json").write_bytes(result_policy())
    for party in PARTIES:
        succeed("keygen", "--role", party, "--name", party.title(), *stage.state(party))
    succeed("owner", "seal", "--model", root / "model", *stage.state("owner"))
    succeed(
        "evaluator", "seal", "--suite", root / "suite", "--bundle", root / "bundle",
        *stage.state("evaluator"),
    )  # fmt: skip
    stage.new_plan(stage.plan)
    return stage


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return make_stage(tmp_path_factory.mktemp("prepared") / "stage")


@pytest.fixture
def stage(prepared: Stage, tmp_path: Path) -> Stage:
    shutil.copytree(prepared.root, tmp_path / "stage")
    return Stage(tmp_path / "stage")


@pytest.fixture
def enclave(stage: Stage, tmp_path: Path) -> Iterator[TrialEnclave]:
    with TrialEnclave(read_plan_directory(stage.plan), tmp_path / "store") as running:
        stage.roots.write_bytes(running.attester.root_certificates())
        yield running


def bring_to_grants(stage: Stage, enclave: TrialEnclave) -> None:
    for party in PARTIES:
        stage.approve(party)
        succeed(party, "upload", *stage.common(enclave, party))


def test_a_whole_evaluation(stage: Stage, enclave: TrialEnclave) -> None:
    status = succeed("owner", "status", "--plan", stage.plan, *stage.state("owner"))
    assert status["next"] == "doubleblind owner approve"
    approved = stage.approve("owner", "--bundle", stage.root / "bundle")
    assert approved["bundle_compared"] is True
    stage.approve("evaluator")
    for party in PARTIES:
        first = succeed(party, "upload", *stage.common(enclave, party))
        assert all(report["sent_segments"] > 0 for report in first["uploads"].values())
        again = succeed(party, "upload", *stage.common(enclave, party))
        assert all(report["sent_segments"] == 0 for report in again["uploads"].values())
    for party in PARTIES:
        status = succeed(party, "status", *stage.common(enclave, party)[:4], *stage.state(party))
        assert status["next"] == f"doubleblind {party} grant"
        granted = succeed(party, "grant", *stage.common(enclave, party))
        assert (granted["run"], granted["resent"]) == (1, False)
        assert set(granted["evidence"]["checks"].values()) <= {"verified", "not_checked"}
    ran = succeed("run", *stage.common(enclave, "evaluator"))
    assert ran["run"] == 1
    for party in PARTIES:
        result = succeed(party, "result", *stage.common(enclave, party))
        assert result["views"] == {"summary": {"accuracy": "0.54", "naive": "0.25"}}
        assert result["audit"]["verdict"] == "verified"
        # What `result` kept can be audited again, alone.
        audit = succeed("audit", result["receipt"])
        assert audit["verdict"] == "verified"
    people = doubleblind("owner", "result", *stage.common(enclave, "owner"))
    assert people.returncode == 0
    assert "0.54" in people.stdout
    assert "naive baseline" in people.stdout
    assert "SIMULATED" in people.stderr

    # The second run has a new session; the third is refused by each party's own ledger.
    for party in PARTIES:
        assert succeed(party, "grant", *stage.common(enclave, party))["run"] == 2
    assert succeed("run", *stage.common(enclave, "owner"))["run"] == 2
    for party in PARTIES:
        refuse(
            party, "grant", *stage.common(enclave, party),
            code="grant_run_budget_spent", exit_code=ExitCode.BUDGET,
        )  # fmt: skip
    first_again = succeed("owner", "result", *stage.common(enclave, "owner"), "--run", "1")
    assert first_again["run"] == 1


def test_secrets_stay_in_the_state_directory(stage: Stage, enclave: TrialEnclave) -> None:
    bring_to_grants(stage, enclave)
    keys = [
        json.loads((stage.root / party / f"secrets/{name}.json").read_text())[field]
        for party, name in (("owner", "model"), ("evaluator", "suite"))
        for field in ("key", "salt")
    ]
    for party in PARTIES:
        done = doubleblind(party, "grant", *stage.common(enclave, party))
        for key in keys:
            assert key not in done.stdout + done.stderr
    for path in stage.root.rglob("*"):
        if path.is_file() and "secrets" not in path.parts:
            data = path.read_bytes()
            for key in keys:
                assert key.encode() not in data, path
                assert bytes.fromhex(key) not in data, path


def test_a_changed_bundle_is_refused_before_signing(stage: Stage) -> None:
    (stage.root / "bundle/score.py").write_text("def evaluate(): steal()\n")
    refuse(
        "owner", "approve", "--plan", stage.plan, *stage.state("owner"), "--yes",
        "--bundle", stage.root / "bundle",
        code="plan_other_bundle", exit_code=ExitCode.POLICY,
    )  # fmt: skip


def test_approving_needs_a_person_or_yes(stage: Stage) -> None:
    refuse(
        "owner", "approve", "--plan", stage.plan, *stage.state("owner"),
        code="approval_not_confirmed", exit_code=ExitCode.POLICY,
    )  # fmt: skip
    assert not (stage.root / "owner/plans").exists()


def test_a_plan_is_approved_once(stage: Stage) -> None:
    first = stage.approve("owner", "--max-runs", "1")
    assert stage.approve("owner", "--max-runs", "1")["approval"] == first["approval"]
    refuse(
        "owner", "approve", "--plan", stage.plan, *stage.state("owner"), "--yes",
        "--max-runs", "2",
        code="plan_already_approved", exit_code=ExitCode.POLICY,
    )  # fmt: skip


def test_resealing_makes_the_plan_foreign(stage: Stage) -> None:
    refuse(
        "owner", "seal", "--model", stage.root / "model", *stage.state("owner"),
        code="artifact_already_sealed", exit_code=ExitCode.POLICY,
    )  # fmt: skip
    succeed("owner", "seal", "--model", stage.root / "model", "--replace", *stage.state("owner"))
    refuse(
        "owner", "approve", "--plan", stage.plan, *stage.state("owner"), "--yes",
        code="artifact_other_commitment", exit_code=ExitCode.POLICY,
    )  # fmt: skip


def test_nothing_is_sent_to_an_enclave_that_proves_nothing(
    stage: Stage, enclave: TrialEnclave
) -> None:
    stage.approve("owner")
    foreign = stage.root / "foreign.pem"
    foreign.write_bytes(make_attester().root_certificates())
    arguments = [
        "--plan", stage.plan, "--endpoint", enclave.endpoint, *stage.state("owner"),
    ]  # fmt: skip
    for verb in ("upload", "grant"):
        refuse(
            "owner", verb, *arguments, "--roots", foreign,
            code="simulated_chain", exit_code=ExitCode.SIGNATURE,
        )  # fmt: skip
        refuse(
            "owner", verb, *arguments,
            code="trust_root_missing", exit_code=ExitCode.ENDORSEMENT,
        )  # fmt: skip
    assert enclave.facade.state.approved_by == ()
    assert enclave.facade.grants_seen == []


def test_a_policy_of_ones_own_pins_the_plans(stage: Stage, enclave: TrialEnclave) -> None:
    stage.approve("owner")
    refuse(
        "owner", "upload", *stage.common(enclave, "owner"),
        "--policy", REPOSITORY / "policies/production_snp_h100.json",
        code="policy_pin_differs", exit_code=ExitCode.POLICY,
    )  # fmt: skip
    succeed(
        "owner", "upload", *stage.common(enclave, "owner"),
        "--policy", REPOSITORY / "policies/unsafe_simulated.json",
    )  # fmt: skip


def test_another_measurement_is_refused(stage: Stage, tmp_path: Path) -> None:
    (stage.root / "references.json").write_bytes(reference_values_for_simulated(b"\x01" * 48))
    other = stage.root / "other"
    stage.new_plan(other)
    with TrialEnclave(read_plan_directory(other), tmp_path / "other-store") as enclave:
        stage.roots.write_bytes(enclave.attester.root_certificates())
        succeed("owner", "approve", "--plan", other, *stage.state("owner"), "--yes")
        error = refuse(
            "owner", "upload", "--plan", other, "--endpoint", enclave.endpoint,
            "--roots", stage.roots, *stage.state("owner"),
            code="simulated_measurement", exit_code=ExitCode.POLICY,
        )  # fmt: skip
        assert error["findings"][0]["got"]


def test_a_relay_is_found_by_its_key(stage: Stage, enclave: TrialEnclave) -> None:
    stage.approve("owner")
    enclave.facade.reported_spki = hashlib.sha256(b"the real enclave's").digest()
    refuse(
        "owner", "upload", *stage.common(enclave, "owner"),
        code="server_key_mismatch", exit_code=ExitCode.SIGNATURE,
    )  # fmt: skip


def test_evidence_for_another_key_is_refused(stage: Stage, enclave: TrialEnclave) -> None:
    stage.approve("owner")
    # The relay reports the key this channel sees, but the evidence binds the enclave's own.
    state = enclave.facade.state
    seen = enclave.facade.reported_spki
    object.__setattr__(state.keys, "tls_spki_sha256", hashlib.sha256(b"inside").digest())
    enclave.facade.reported_spki = seen
    refuse(
        "owner", "grant", *stage.common(enclave, "owner"),
        code="binding_mismatch", exit_code=ExitCode.POLICY,
    )  # fmt: skip
    assert enclave.facade.grants_seen == []


def test_a_grant_before_the_upload_costs_no_run(stage: Stage, enclave: TrialEnclave) -> None:
    stage.approve("owner")
    refuse(
        "owner", "grant", *stage.common(enclave, "owner"),
        code="grant_upload_missing", exit_code=ExitCode.POLICY,
    )  # fmt: skip
    with Ledger(stage.root / "owner/ledger.sqlite") as ledger:
        assert ledger.runs(read_plan_directory(stage.plan).plan.digest) == ()


def test_an_approval_for_one_run_allows_one(stage: Stage, enclave: TrialEnclave) -> None:
    stage.approve("owner", "--max-runs", "1")
    stage.approve("evaluator")
    for party in PARTIES:
        succeed(party, "upload", *stage.common(enclave, party))
        succeed(party, "grant", *stage.common(enclave, party))
    succeed("run", *stage.common(enclave, "owner"))
    refuse(
        "owner", "grant", *stage.common(enclave, "owner"),
        code="grant_run_budget_spent", exit_code=ExitCode.BUDGET,
    )  # fmt: skip


def test_kill_9_while_granting_costs_the_run_once(stage: Stage, enclave: TrialEnclave) -> None:
    bring_to_grants(stage, enclave)
    digest = read_plan_directory(stage.plan).plan.digest
    enclave.facade.before_grant.clear()  # the enclave takes the grant but does not answer yet
    client = subprocess.Popen(
        command_line("owner", "grant", *stage.common(enclave, "owner")),
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    recorded = ()
    for _ in range(300):
        time.sleep(0.1)
        with Ledger(stage.root / "owner/ledger.sqlite") as ledger:
            recorded = ledger.runs(digest)
        if recorded:
            break
    client.send_signal(signal.SIGKILL)
    client.communicate(timeout=30)
    assert [run.sent for run in recorded] == [frozenset()]
    enclave.facade.before_grant.set()

    again = succeed("owner", "grant", *stage.common(enclave, "owner"))
    assert (again["run"], again["resent"], again["runs_granted"]) == (1, True, 1)
    assert len({hashlib.sha256(each).digest() for each in enclave.facade.grants_seen}) == 1
    succeed("evaluator", "grant", *stage.common(enclave, "evaluator"))
    assert succeed("run", *stage.common(enclave, "owner"))["run"] == 1


def test_a_restarted_enclave_is_the_next_run(stage: Stage, enclave: TrialEnclave) -> None:
    bring_to_grants(stage, enclave)
    assert succeed("owner", "grant", *stage.common(enclave, "owner"))["run"] == 1
    enclave.facade.renew_session("", "")  # session keys live in memory only
    assert succeed("owner", "grant", *stage.common(enclave, "owner"))["run"] == 2
    enclave.facade.renew_session("", "")
    refuse(
        "owner", "grant", *stage.common(enclave, "owner"),
        code="grant_run_budget_spent", exit_code=ExitCode.BUDGET,
    )  # fmt: skip


def test_a_refused_run_is_exit_9_and_has_no_result(stage: Stage, enclave: TrialEnclave) -> None:
    bring_to_grants(stage, enclave)
    enclave.facade.result = {"metrics": {}, "controls": {}, "completed": 1, "failed": 0}
    for party in PARTIES:
        succeed(party, "grant", *stage.common(enclave, party))
    done = doubleblind("run", *stage.common(enclave, "owner"), "--json")
    assert done.returncode == ExitCode.RUN
    assert last_json(done)["error"]["stage"] == "release"
    refuse(
        "owner", "result", *stage.common(enclave, "owner"),
        code="run_unknown", exit_code=ExitCode.POLICY,
    )  # fmt: skip
    status = succeed("owner", "status", *stage.common(enclave, "owner")[:4], *stage.state("owner"))
    assert status["next"] == "doubleblind owner grant"


def test_a_receipt_of_a_session_never_granted_is_refused(
    stage: Stage, enclave: TrialEnclave
) -> None:
    bring_to_grants(stage, enclave)
    for party in PARTIES:
        succeed(party, "grant", *stage.common(enclave, party))
    succeed("run", *stage.common(enclave, "owner"))
    # Another state directory of the same party, restored from before the grant.
    with Ledger(stage.root / "owner/ledger.sqlite") as ledger:
        ledger._connection.execute("DELETE FROM grants")
        ledger._connection.execute("DELETE FROM runs")
    refuse(
        "owner", "result", *stage.common(enclave, "owner"),
        code="receipt_other_session", exit_code=ExitCode.RECEIPT,
    )  # fmt: skip


def test_party_evidence_is_shown_where_the_plan_asks(stage: Stage, tmp_path: Path) -> None:
    state = StateDirectory(stage.root / "evaluator")
    made = succeed("attest", "device", "--kind", "simulated", *stage.state("evaluator"))
    device_references = stage.root / "device.json"
    succeed("attest", "reference-values", "--kind", "simulated", "--out", device_references)
    plan = stage.root / "asking"
    stage.new_plan(
        plan,
        "--party-evidence", "evaluator", "simulated",
        REPOSITORY / "policies/unsafe_simulated.json", device_references,
    )  # fmt: skip
    with TrialEnclave(read_plan_directory(plan), tmp_path / "asking-store") as enclave:
        stage.roots.write_bytes(enclave.attester.root_certificates())
        asking = Stage(stage.root)
        common = (
            "--plan", plan, "--endpoint", enclave.endpoint, "--roots", stage.roots,
        )  # fmt: skip
        for party in PARTIES:
            succeed(party, "approve", "--plan", plan, *asking.state(party), "--yes")
            succeed(party, "upload", *common, *asking.state(party))
        refuse(
            "evaluator", "grant", *common, *stage.state("evaluator"),
            code="grant_evidence_not_shown", exit_code=ExitCode.POLICY,
        )  # fmt: skip
        refuse(
            "evaluator", "evidence", *common, *stage.state("evaluator"),
            code="trust_root_missing", exit_code=ExitCode.ENDORSEMENT,
        )  # fmt: skip
        enclave.facade.party_roots = parse_trust_roots(simulated=Path(made["root"]).read_bytes())
        shown = succeed("evaluator", "evidence", *common, *stage.state("evaluator"))
        assert shown["kind"] == "simulated"
        for party in PARTIES:
            succeed(party, "grant", *common, *stage.state(party))
        succeed("run", *common, *stage.state("owner"))
        both = stage.root / "both.pem"
        both.write_bytes(stage.roots.read_bytes() + Path(made["root"]).read_bytes())
        result = succeed(
            "owner", "result", "--plan", plan, "--endpoint", enclave.endpoint,
            "--roots", both, *stage.state("owner"),
        )  # fmt: skip
        assert result["audit"]["verdict"] == "verified"
    assert load_keys(state).party.role == "evaluator"
