"""The offline audit: an honest receipt, dishonest enclaves, altered receipts, missing sources."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attestation.errors import CheckState
from enclave.clients.auditor.audit import audit_receipt
from enclave.clients.auditor.report import (
    FAILED,
    INCOMPLETE,
    NO_EVIDENCE,
    VERIFIED,
    AuditReport,
)
from enclave.clients.auditor.sources import BESIDE, GIVEN, MISSING, find_sources
from enclave.clients.party.plan_directory import PlanDirectory, write_plan_directory
from enclave.core.receipt import _subject
from enclave.core.run_facts import IsolationFacts, RunFacts, SessionEvidence, WipeFacts
from enclave.core.statement import Statement
from enclave.core.vocabulary import ENCLAVE_RUN_TYPE
from tests.clients.conftest import NOW
from tests.clients.world import (
    World,
    later,
    make_facts,
    make_receipt,
    make_world,
    write_audit_folder,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def directory(world: World) -> PlanDirectory:
    return world.plan()


@pytest.fixture(scope="module")
def receipt(
    world: World, directory: PlanDirectory, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    data = make_receipt(world, make_facts(world, directory))
    return write_audit_folder(world, directory, data, tmp_path_factory.mktemp("r") / "audit")


def audit(path: Path, **options: Any) -> AuditReport:
    now = options.pop("now", later(hours=2))
    return audit_receipt(path.name, path.read_bytes(), find_sources(path, **options), now=now)


def failed(report: AuditReport) -> dict[str, str]:
    return {
        f"{check.stage}.{check.name}": check.error.code
        for check in report.checks
        if check.error is not None
    }


def test_an_honest_receipt_is_verified_whole(receipt: Path) -> None:
    report = audit(receipt)
    assert report.verdict == VERIFIED, failed(report)
    assert len(report.checks) >= 30
    assert report.origins == dict.fromkeys(
        ("roots", "policy", "reference_values", "result_policy"), BESIDE
    )
    assert any("simulated" in line for line in report.not_proven)
    assert any("time of the run" in line for line in report.not_proven)


def test_no_check_is_named_twice(receipt: Path) -> None:
    names = [(check.stage, check.name) for check in audit(receipt).checks]
    assert len(set(names)) == len(names)


def test_nothing_beside_the_receipt_is_incomplete_never_verified(
    receipt: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "receipt.json"
    alone.write_bytes(receipt.read_bytes())
    report = audit(alone)
    assert report.verdict == INCOMPLETE
    assert set(report.origins.values()) == {MISSING}
    skipped = {(c.stage, c.name) for c in report.checks if c.state is CheckState.NOT_CHECKED}
    for stage in ("evidence:model_owner", "evidence:evaluator", "closing"):
        assert {(stage, name) for name in ("signature", "binding", "policy")} <= skipped
    assert ("budget", "bits") in skipped


def test_own_roots_and_policies_are_used_and_named(
    world: World, directory: PlanDirectory, receipt: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "receipt.json"
    alone.write_bytes(receipt.read_bytes())
    roots = tmp_path / "my.pem"
    roots.write_bytes(world.attester.root_certificates())
    write_plan_directory(tmp_path / "plan", directory)
    report = audit(alone, roots=roots, plan=tmp_path / "plan")
    assert report.verdict == VERIFIED
    assert report.origins["roots"] == GIVEN


def test_roots_of_another_attester_are_refused(
    receipt: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    foreign = tmp_path / "foreign.pem"
    foreign.write_bytes(make_world(tmp_path / "other").attester.root_certificates())
    report = audit(receipt, roots=foreign)
    assert report.verdict == FAILED
    assert "evidence:evaluator.signature" in failed(report)
    assert "closing.signature" in failed(report)
    assert report.not_proven[0] == NO_EVIDENCE


def test_a_production_policy_refuses_simulated_evidence(receipt: Path) -> None:
    policy = Path(__file__).resolve().parents[2] / "policies/production_snp_h100.json"
    report = audit(receipt, policy=policy)
    assert report.verdict == FAILED
    assert failed(report)["policies.attestation_policy"] == "audit_policy_differs"
    assert "evidence:model_owner.policy" in failed(report)


def test_another_plan_is_refused(world: World, receipt: Path, tmp_path: Path) -> None:
    write_plan_directory(tmp_path / "plan", world.plan(title="Another"))
    report = audit(receipt, plan=tmp_path / "plan")
    assert failed(report)["plan.digest"] == "audit_other_plan"


def test_evidence_is_judged_at_the_time_asked_for(receipt: Path) -> None:
    assert audit(receipt, now=later(days=1)).verdict == VERIFIED
    report = audit(receipt, now=later(days=400))
    assert "evidence:evaluator.signature" in failed(report)


def _evidence_swapped(facts: RunFacts) -> RunFacts:
    first, second = facts.evidence
    return replace(
        facts,
        evidence=(
            SessionEvidence(first.label, first.nonce, second.evidence),
            SessionEvidence(second.label, second.nonce, first.evidence),
        ),
    )


def _release_to_one(facts: RunFacts) -> RunFacts:
    return replace(facts, releases=facts.releases[:1])


_NARROW: list[tuple[bytes, ...]] = []
"""Approvals of which the owner's is for one run; filled by the test."""


# What an enclave with the right key could write, were it not the measured software:
# each is signed, closed and bound, and each is found by its own check.
DISHONEST: dict[str, tuple[Callable[[RunFacts], RunFacts], str, str]] = {
    "evidence of another nonce": (
        _evidence_swapped,
        "evidence:evaluator.binding",
        "binding_mismatch",
    ),
    "evidence missing": (
        lambda f: replace(f, evidence=f.evidence[:1]),
        "evidence.complete",
        "receipt_evidence_missing",
    ),
    "nonce reused": (
        lambda f: replace(
            f, evidence=(f.evidence[0], replace(f.evidence[1], nonce=f.evidence[0].nonce))
        ),
        "evidence.complete",
        "receipt_nonce_reused",
    ),
    "approvals in the wrong place": (
        lambda f: replace(f, approvals=tuple(reversed(f.approvals))),
        "approvals.model_owner",
        "receipt_approval_order",
    ),
    "approval twice": (
        lambda f: replace(f, approvals=(f.approvals[0], f.approvals[0])),
        "approvals.evaluator",
        "receipt_approval_order",
    ),
    "weak isolation": (
        lambda f: replace(f, isolation=replace(f.isolation, tier="T1")),
        "isolation.tier",
        "receipt_tier",
    ),
    "a probe passed": (
        lambda f: replace(f, isolation=IsolationFacts("T2", "cd" * 32, 24, 23)),
        "isolation.probes",
        "receipt_probe_passed",
    ),
    "a control left out": (
        lambda f: replace(f, controls=("other",)),
        "controls.known_answers",
        "receipt_controls",
    ),
    "a recipient left out": (_release_to_one, "releases.recipients", "receipt_releases"),
    "a release of another size": (
        lambda f: replace(f, releases=tuple(replace(r, size=r.size + 1) for r in f.releases)),
        "releases.size",
        "receipt_releases",
    ),
    "fewer bits than it cost": (
        lambda f: replace(f, bits=f.bits - 1),
        "budget.bits",
        "receipt_bits",
    ),
    "a run too many": (
        lambda f: replace(f, run=3, runs_spent=3),
        "budget.runs",
        "receipt_run_past_max",
    ),
    "runs not counted": (
        lambda f: replace(f, run=2, runs_spent=1),
        "budget.runs",
        "receipt_run_past_max",
    ),
    "ended before it began": (
        lambda f: replace(f, finished_slot="2026-12-01T11:00:00Z"),
        "time.order",
        "receipt_slots",
    ),
    "begun after the plan ended": (
        lambda f: replace(
            f, started_slot="2026-12-20T12:00:00Z", finished_slot="2026-12-20T12:00:00Z"
        ),
        "approvals.model_owner",
        "approval_expired",
    ),
    "a time between slots": (
        lambda f: replace(f, finished_slot="2026-12-01T12:00:07Z"),
        "time.slots",
        "release_slot",
    ),
    "ended after the audit": (
        lambda f: replace(f, finished_slot="2026-12-01T15:00:00Z"),
        "time.past",
        "receipt_ahead",
    ),
    "more runs spent than one party approved": (
        lambda f: replace(f, run=1, runs_spent=2, approvals=_NARROW[0]),
        "approvals.model_owner",
        "receipt_run_past_max",
    ),
    "too many samples": (
        lambda f: replace(f, completed=10_001),
        "samples.count",
        "receipt_samples",
    ),
    "keys of a party": (
        lambda f: replace(
            f, keys=replace(f.keys, hpke_key=f.plan.party("evaluator").recipient_key)
        ),
        "keys.session",
        "receipt_shared_key",
    ),
    "another TLS key than the evidence binds": (
        lambda f: replace(
            f, keys=replace(f.keys, tls_spki_sha256=hashlib.sha256(b"relay").digest())
        ),
        "evidence:model_owner.binding",
        "binding_mismatch",
    ),
    "nothing wiped": (
        lambda f: replace(f, wipe=WipeFacts(0, 0)),
        "envelope.format",
        "document_field_value",
    ),
}


@pytest.mark.parametrize("name", DISHONEST)
def test_a_dishonest_receipt(
    name: str, world: World, directory: PlanDirectory, tmp_path: Path
) -> None:
    change, check, code = DISHONEST[name]
    _NARROW[:] = [
        (
            world.approval(directory, "model_owner", max_runs=1),
            world.approval(directory, "evaluator"),
        )
    ]

    def statement(facts: RunFacts) -> bytes:
        return Statement(_subject(facts), ENCLAVE_RUN_TYPE, facts.to_json()).to_bytes()

    facts = change(make_facts(world, directory))
    if check == "envelope.format":
        from enclave.core.dsse import sign_envelope
        from enclave.core.receipt import close_receipt
        from tests.clients.world import _session_key

        data = close_receipt(sign_envelope(statement(facts), _session_key()), b"{}")
    else:
        data = make_receipt(world, facts, statement=statement)
    path = write_audit_folder(world, directory, data, tmp_path / "audit")
    report = audit(path)
    assert report.verdict == FAILED
    assert failed(report).get(check) == code, failed(report)


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, each in value.items() for leaf in _leaves(each, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, each in enumerate(value) for leaf in _leaves(each, (*path, index))]
    return [path]


def _alter(value: Any, path: tuple[Any, ...]) -> Any:
    if not path:
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return value + 1
        last = value[-1:] if value else ""
        return value[:-1] + ("1" if last == "0" else "0")
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _alter(value[path[0]], path[1:])
    return copy


def test_every_altered_field_fails(receipt: Path, tmp_path: Path) -> None:
    document = json.loads(receipt.read_bytes())
    payload = json.loads(base64.b64decode(document["envelope"]["payload"]))
    sources = find_sources(receipt)
    altered = 0
    from enclave.core.canonical import print_canonical

    for path in _leaves(payload):
        changed = dict(document, envelope=dict(document["envelope"]))
        changed["envelope"]["payload"] = base64.b64encode(
            print_canonical(_alter(payload, path))
        ).decode()
        report = audit_receipt("r", print_canonical(changed), sources, now=later(hours=2))
        assert report.verdict == FAILED, path
        assert report.first_error is not None
        altered += 1
    for path in _leaves(document):
        if path == ("envelope", "payload"):
            continue
        report = audit_receipt(
            "r", print_canonical(_alter(document, path)), sources, now=later(hours=2)
        )
        assert report.verdict == FAILED, path
        altered += 1
    assert altered >= 50


def test_garbage_is_listed_not_raised(receipt: Path) -> None:
    whole = audit(receipt)
    for data in (b"", b"{}", b"\xff", receipt.read_bytes() + b" ", b'{"envelope":{},"closing":{}}'):
        report = audit_receipt("r", data, find_sources(receipt), now=NOW)
        assert report.verdict == FAILED
        assert [c.state for c in report.checks[1:]] == [CheckState.NOT_CHECKED] * (
            len(report.checks) - 1
        )
        assert {(c.stage, c.name) for c in report.checks} == {
            (c.stage, c.name) for c in whole.checks
        }
