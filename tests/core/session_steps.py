"""Steps of a session with real approvals and real simulated evidence."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta
from functools import cache

import pytest

from enclave.core.approval import sign_approval, verify_approval
from enclave.core.binding import compute_binding
from enclave.core.canonical import digest_bytes
from enclave.core.errors import Refusal
from enclave.core.plan import Plan
from enclave.core.run_facts import SessionKeys
from enclave.core.session import AcceptedGrant, Session
from enclave.core.vocabulary import APPROVING_ROLES, ARTIFACT_OWNER, ARTIFACTS
from tests.core.builders import NOW, World, make_world
from tests.core.sessions import SESSION, attester
from tests.core.sessions import open_session as attested

EVERYTHING = frozenset(ARTIFACTS)
CHALLENGE = b"c" * 32


@cache
def the_world() -> World:
    return make_world()


@cache
def plan_with_demand() -> Plan:
    demand = {"kind": "simulated", "policy": "88" * 32, "reference_values": "99" * 32}
    return the_world().other_plan(party_evidence={"model_owner": demand, "evaluator": None})


@cache
def keys() -> SessionKeys:
    inputs = attested(the_world()).inputs
    return SessionKeys(inputs.tls_spki_sha256, inputs.hpke_key, inputs.signing_key)


def fresh(plan: Plan | None = None) -> Session:
    return Session(plan or the_world().plan, SESSION, keys(), CHALLENGE)


def envelope(
    role: str, plan: Plan | None = None, *, number: int = 1, max_runs: int = 3, days: int = 30
) -> bytes:
    world = the_world()
    signer = world.owner if role == "model_owner" else world.evaluator
    nonce = hashlib.sha256(f"{role} {number}".encode()).digest()
    until = NOW + timedelta(days=days)
    return sign_approval(plan or world.plan, role, signer.signing_key, nonce, max_runs, until)


def approve(session: Session, role: str, **options: int) -> None:
    data = envelope(role, session.plan, **options)
    session.accept_approval(verify_approval(data, session.plan, NOW), NOW)


def ask(session: Session, role: str, nonce: bytes = b"") -> str:
    """Evidence over a nonce; returns its digest."""
    nonce = nonce or hashlib.sha256(f"nonce of {role}".encode()).digest()
    binding = compute_binding(session.accept_nonce(role, nonce))
    bundle = attester().collect_evidence(binding)
    session.record_evidence(role, nonce, bundle.to_bytes())
    return bundle.digest


def grant(session: Session, artifact: str, evidence: str, *, run: int = 1) -> None:
    role = ARTIFACT_OWNER[artifact]
    digest = digest_bytes(f"{artifact} {run} {evidence}".encode())
    session.accept_grant(AcceptedGrant(artifact, role, evidence, run, digest))


def ready(session: Session | None = None, **options: int) -> Session:
    """A session in which nothing is missing."""
    session = session or fresh()
    for role in APPROVING_ROLES:
        approve(session, role, **options)
    evidence = {role: ask(session, role) for role in APPROVING_ROLES}
    for artifact, role in ARTIFACT_OWNER.items():
        grant(session, artifact, evidence[role])
    return session


def refuse(kind: type[Refusal], code: str, action: Callable[[], object]) -> Refusal:
    with pytest.raises(kind) as caught:
        action()
    assert type(caught.value) is kind
    assert caught.value.code == code
    return caught.value
