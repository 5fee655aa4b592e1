"""A whole evaluation's documents, made with real keys and a simulated attester, no network."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from attestation.collect import SimulatedAttester, reference_values_for_simulated
from enclave.clients.party.artifact_card import ArtifactCard
from enclave.clients.party.keys import PartyKeys, create_keys
from enclave.clients.party.plan_directory import PlanDirectory
from enclave.clients.party.plan_draft import PlanDraft, write_plan
from enclave.clients.party.state import StateDirectory
from enclave.core.approval import sign_approval
from enclave.core.binding import compute_binding
from enclave.core.budget import compute_budget
from enclave.core.hpke import SEAL_OVERHEAD, generate_private, public_bytes
from enclave.core.receipt import (
    build_receipt_statement,
    close_receipt,
    closing_inputs,
    sign_receipt,
)
from enclave.core.result_policy import parse_result_policy
from enclave.core.run_facts import (
    IsolationFacts,
    RunFacts,
    SealedRelease,
    SessionEvidence,
    SessionKeys,
    WipeFacts,
)
from enclave.core.signing_key import print_signing_key
from tests.clients.conftest import NOW

MEASUREMENT = bytes(range(48))
POLICIES = Path(__file__).resolve().parents[2] / "policies"
SALT = "5a" * 32


def card(artifact: str, commitment: str = "") -> ArtifactCard:
    return ArtifactCard(
        artifact=artifact,
        commitment=commitment or hashlib.sha256(artifact.encode()).hexdigest(),
        max_bytes=2**20,
        max_files=16,
        salt=SALT if artifact == "bundle" else None,
        environment="python-stdlib" if artifact == "bundle" else None,
        template_sha256=hashlib.sha256(b"").hexdigest() if artifact == "model" else None,
    )


def result_policy() -> bytes:
    ratio = {"kind": "ratio", "low": "0", "high": "1", "step": "0.01", "min_n": 10, "max_digits": 6}
    return json.dumps(
        {
            "type": "https://w3id.org/double-blind/result-policy/v1",
            "max_bits": 512,
            "slot_seconds": 3600,
            "release_bytes": 4096,
            "metrics": [
                {"id": "accuracy", **ratio, "views": ["summary"]},
                {"id": "naive", **ratio, "views": ["summary"]},
            ],
            "controls": [{"id": "oracle", "expected": "1"}],
            "baselines": [{"metric": "accuracy", "baseline": "naive"}],
        }
    ).encode()


@dataclass
class World:
    """Two parties, a plan, and an attester whose root both were given."""

    root: Path
    owner_state: StateDirectory
    evaluator_state: StateDirectory
    owner: PartyKeys
    evaluator: PartyKeys
    attester: SimulatedAttester

    def draft(self, **changes: object) -> PlanDraft:
        terms = {
            "title": "Sums",
            "plan_id": b"\x07" * 16,
            "parties": [self.evaluator.party, self.owner.party],
            "cards": {artifact: card(artifact) for artifact in ("model", "suite", "bundle")},
            "attestation_policy": (POLICIES / "unsafe_simulated.json").read_bytes(),
            "reference_values": reference_values_for_simulated(MEASUREMENT),
            "result_policy": result_policy(),
            "max_runs": 2,
            "not_after": NOW + timedelta(days=7),
            **changes,
        }
        return PlanDraft(**terms)  # type: ignore[arg-type]

    def plan(self, **changes: object) -> PlanDirectory:
        return write_plan(self.draft(**changes))

    def approval(self, directory: PlanDirectory, role: str, *, max_runs: int = 2) -> bytes:
        keys = self.owner if role == "model_owner" else self.evaluator
        return sign_approval(
            directory.plan,
            role,
            keys.signing_key,
            hashlib.sha256(role.encode()).digest(),
            max_runs,
            directory.plan.not_after,
        )


def make_world(root: Path, *, owner_name: str = "Acme") -> World:
    states = [StateDirectory.create(root / name) for name in ("owner", "evaluator")]
    owner = create_keys(states[0], role="model_owner", name=owner_name, now=NOW)
    evaluator = create_keys(states[1], role="evaluator", name="Eve", now=NOW)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        attester = SimulatedAttester(MEASUREMENT, clock=lambda: NOW)
    return World(root, *states, owner, evaluator, attester)


@cache
def _session_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def make_facts(world: World, directory: PlanDirectory, *, run: int = 1) -> RunFacts:
    plan = directory.plan
    policy = parse_result_policy(directory.result_policy)
    draft = RunFacts(
        plan=plan,
        session="ab" * 16,
        run=run,
        keys=SessionKeys(
            hashlib.sha256(b"tls").digest(),
            public_bytes(generate_private()),
            print_signing_key(_session_key().public_key()),
        ),
        approvals=tuple(world.approval(directory, role) for role in ("model_owner", "evaluator")),
        evidence=(),
        party_evidence=(),
        engine={"kernel": "torch"},
        isolation=IsolationFacts("T2", "cd" * 32, 24, 24),
        controls=("oracle",),
        completed=100,
        failed=0,
        wipe=WipeFacts(12, 4096),
        releases=tuple(
            SealedRelease("summary", role, "ef" * 32, policy.release_bytes + SEAL_OVERHEAD)
            for role in ("model_owner", "evaluator")
        ),
        bits=compute_budget(plan, policy).bits_per_run,
        runs_spent=run,
        started_slot="2026-12-01T12:00:00Z",
        finished_slot="2026-12-01T12:00:00Z",
    )
    return replace(
        draft,
        evidence=tuple(_evidence(world, draft, role) for role in ("model_owner", "evaluator")),
    )


def _evidence(world: World, facts: RunFacts, role: str) -> SessionEvidence:
    nonce = hashlib.sha256(b"nonce " + role.encode()).digest()
    binding = compute_binding(facts.binding_inputs(role, nonce))
    return SessionEvidence(role, nonce, world.attester.collect_evidence(binding).to_bytes())


def make_receipt(
    world: World,
    facts: RunFacts,
    *,
    statement: Callable[[RunFacts], bytes] = build_receipt_statement,
) -> bytes:
    signed = statement(facts)
    envelope = sign_receipt(signed, _session_key())
    binding = compute_binding(closing_inputs(facts, signed))
    return close_receipt(envelope, world.attester.collect_evidence(binding).to_bytes())


def write_audit_folder(world: World, directory: PlanDirectory, receipt: bytes, to: Path) -> Path:
    (to / "documents").mkdir(parents=True)
    for digest, data in directory.documents.items():
        (to / "documents" / f"{digest}.json").write_bytes(data)
    (to / "roots.pem").write_bytes(world.attester.root_certificates())
    (to / "receipt.json").write_bytes(receipt)
    return to / "receipt.json"


def later(**span: int) -> datetime:
    return NOW + timedelta(**span)
