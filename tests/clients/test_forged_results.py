"""A host that answers `result` itself: its numbers are never shown, its receipts never kept."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from enclave.cli.exit_codes import ExitCode
from enclave.clients.party.plan_directory import read_plan_directory
from enclave.core.receipt import build_receipt_statement, close_receipt, parse_receipt, sign_receipt
from enclave.core.release import open_view, parse_view, seal_view
from enclave.core.result_policy import parse_result_policy
from enclave.core.run_facts import SealedRelease
from enclave.core.signing_key import print_signing_key
from tests.clients.conftest import doubleblind, last_json
from tests.clients.test_flow import PARTIES, Stage, bring_to_grants, make_stage, succeed
from tests.clients.trial_enclave import TrialEnclave


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, TrialEnclave]]:
    root = tmp_path_factory.mktemp("forged")
    stage = make_stage(root / "stage")
    with TrialEnclave(read_plan_directory(stage.plan), root / "store") as enclave:
        stage.roots.write_bytes(enclave.attester.root_certificates())
        bring_to_grants(stage, enclave)
        for party in PARTIES:
            succeed(party, "grant", *stage.common(enclave, party))
        succeed("run", *stage.common(enclave, "evaluator"))
        yield stage, enclave


def forge(stage: Stage, enclave: TrialEnclave) -> None:
    """Everything a host can make: it knows the plan, the evidence, the approvals and every key
    in public; it has no key of the session."""
    directory = read_plan_directory(stage.plan)
    plan, policy = directory.plan, parse_result_policy(directory.result_policy)
    steps, views, receipt = enclave.facade._runs[1]
    genuine = parse_receipt(receipt)
    key = ec.generate_private_key(ec.SECP256R1())
    from enclave.clients.party.keys import load_keys
    from enclave.clients.party.state import StateDirectory

    keys = load_keys(StateDirectory(stage.root / "owner"))
    shown = open_view(
        next(v.sealed for v in views if v.role == "model_owner"),
        keys.recipient_key, plan=plan, policy=policy, session=genuine.facts.session,
        run=1, view="summary", role="model_owner",
    )  # fmt: skip
    better = replace(
        shown, metrics=tuple(replace(m, value="0.99", steps=99) for m in shown.metrics)
    )
    parse_view(better.to_bytes(policy.release_bytes), "summary", policy)
    sealed = tuple(
        seal_view(better, plan.party(role), plan=plan, policy=policy)
        for role in plan.views["summary"]
    )
    facts = replace(
        genuine.facts,
        keys=replace(genuine.facts.keys, signing_key=print_signing_key(key.public_key())),
        releases=tuple(SealedRelease(v.view, v.role, v.digest, len(v.sealed)) for v in sealed),
    )
    statement = build_receipt_statement(facts)
    forged = close_receipt(sign_receipt(statement, key), genuine.closing_evidence)
    enclave.facade._runs[1] = (steps, sealed, forged)


def test_a_forged_score_is_never_shown(evaluated: tuple[Stage, TrialEnclave]) -> None:
    stage, enclave = evaluated
    common = stage.common(enclave, "owner")
    kept = Path(succeed("owner", "result", *common)["receipt"])
    good = kept.read_bytes()
    forge(stage, enclave)
    (kept.parent / "roots.pem").unlink()
    blind = [word for word in common if word not in ("--roots", stage.roots)]
    for options in (common, blind):
        done = doubleblind("owner", "result", *map(str, options), "--json")
        assert "0.99" not in done.stdout + done.stderr
        assert done.returncode not in (ExitCode.OK, ExitCode.INCOMPLETE)
        assert "views" not in last_json(done)
        assert kept.read_bytes() == good, "a receipt that holds is not lost to one that does not"
    assert last_json(done)["error"]["code"] == "result_not_proven"
    assert base64.b64encode(b"0.99").decode() not in done.stdout
    assert not list((stage.root / "owner/releases").rglob("*0.99*"))
