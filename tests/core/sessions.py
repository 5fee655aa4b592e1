"""A session with real keys, real simulated evidence and a real appraisal."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from attestation.appraise import (
    appraise_evidence,
    parse_authored_policy,
    parse_authored_reference_values,
)
from attestation.collect.simulated import SimulatedAttester
from attestation.types import AttestationResult, EvidenceBundle
from attestation.verify import parse_trust_roots, verify_evidence
from enclave.core.binding import BindingInputs, compute_binding
from enclave.core.budget import compute_budget
from enclave.core.hpke import RecipientPrivateKey, generate_private, public_bytes
from enclave.core.release import SealedView, parse_result, release_result, seal_release
from enclave.core.run_facts import (
    IsolationFacts,
    RunFacts,
    SealedRelease,
    SessionEvidence,
    SessionKeys,
    WipeFacts,
)
from enclave.core.signing_key import print_signing_key
from tests.core.builders import NOW, World, approve, frame_json, print_json

MEASUREMENT = b"m" * 48
SESSION = "ab" * 16
SLOT = "2026-10-01T12:00:00Z"
POLICY = Path(__file__).parents[2] / "policies" / "unsafe_simulated.json"
NONCE = b"o" * 32


@cache
def attester() -> SimulatedAttester:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SimulatedAttester(MEASUREMENT, clock=lambda: NOW)


def appraise(bundle: EvidenceBundle, binding: bytes) -> AttestationResult:
    roots = parse_trust_roots(simulated=attester().root_certificates())
    values = {
        "type": "https://w3id.org/double-blind/reference-values/v1",
        "name": "test",
        "values": {
            "simulated": {"measurements": [{"name": "test", "measurement": MEASUREMENT.hex()}]}
        },
    }
    return appraise_evidence(
        verify_evidence(bundle, roots=roots, now=NOW),
        policy=parse_authored_policy(POLICY.read_bytes()),
        reference_values=parse_authored_reference_values(print_json(values)),
        expected_binding=binding,
        now=NOW,
    )


@dataclass(frozen=True)
class Session:
    hpke_key: RecipientPrivateKey
    signing_key: ec.EllipticCurvePrivateKey
    inputs: BindingInputs
    bundle: EvidenceBundle
    result: AttestationResult


def open_session(world: World, role: str = "model_owner", nonce: bytes = NONCE) -> Session:
    hpke_key = generate_private()
    signing_key = ec.generate_private_key(ec.SECP256R1())
    inputs = BindingInputs(
        plan=world.plan.digest,
        session=SESSION,
        tls_spki_sha256=b"t" * 32,
        hpke_key=public_bytes(hpke_key),
        signing_key=print_signing_key(signing_key.public_key()),
        nonces=((role, nonce),),
    )
    bundle = attester().collect_evidence(compute_binding(inputs))
    return Session(hpke_key, signing_key, inputs, bundle, appraise(bundle, compute_binding(inputs)))


def release_demo(world: World, run: int = 1) -> tuple[SealedView, ...]:
    result = parse_result(print_json(frame_json()), world.plan, world.policy)
    views = release_result(
        result, plan=world.plan, policy=world.policy, session=SESSION, run=run, slot=SLOT
    )
    return seal_release(views, plan=world.plan, policy=world.policy)


def make_facts(world: World, session: Session) -> RunFacts:
    inputs = session.inputs
    evidence = []
    for role, nonce in (("model_owner", b"o" * 32), ("evaluator", b"e" * 32)):
        binding = compute_binding(replace(inputs, nonces=((role, nonce),)))
        bundle = attester().collect_evidence(binding)
        evidence.append(SessionEvidence(role, nonce, bundle.to_bytes()))
    return RunFacts(
        plan=world.plan,
        session=SESSION,
        run=1,
        keys=SessionKeys(inputs.tls_spki_sha256, inputs.hpke_key, inputs.signing_key),
        approvals=approve(world),
        evidence=tuple(evidence),
        party_evidence=(),
        engine={"torch": "2.13.0", "device": "cpu"},
        isolation=IsolationFacts("T2", "aa" * 32, 20, 20),
        controls=("null_answer", "oracle"),
        completed=120,
        failed=0,
        wipe=WipeFacts(3, 1000),
        releases=tuple(
            SealedRelease(s.view, s.role, s.digest, len(s.sealed)) for s in release_demo(world)
        ),
        bits=compute_budget(world.plan, world.policy).bits_per_run,
        runs_spent=1,
        started_slot=SLOT,
        finished_slot=SLOT,
    )
