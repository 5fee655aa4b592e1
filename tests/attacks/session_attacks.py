"""Attacks on the way into a session: nonces, relayed evidence, evidence of the wrong machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from cryptography.hazmat.primitives.asymmetric import ec

from attestation.errors import PolicyRefused
from enclave.clients.channel.bootstrap import fetch_server_certificate
from enclave.clients.party.plan_directory import PlanDirectory
from enclave.core.errors import BindingRefused, GrantRefused, SessionRefused
from enclave.core.grant import grant_key
from enclave.core.hpke import generate_private, public_bytes
from enclave.core.session import MAX_EVIDENCE_A_ROLE
from enclave.core.signing_key import print_signing_key
from enclave.wire.errors import ChannelRefused
from enclave.wire.messages import AttestReply
from enclave.workload.service.facade import EnclaveFacade
from enclave.workload.service.identity import make_server_identity
from tests.attacks.acceptance import EVALUATOR, HOST, MODEL_OWNER, NETWORK, Step, Table
from tests.attacks.relay import Relay
from tests.attacks.scene import Stage, Workload

ATTACKS = Table()


def connect_through(
    stage: Stage,
    alter: Callable[[Workload, str, bytes], AttestReply],
    *,
    own_certificate: bool = False,
    beside: tuple[PlanDirectory, ...] = (),
) -> Step:
    """The model owner connects to an attacker who answers `attest` as `alter` does."""
    workload = stage.workload(stage.scene.directory, *beside)
    relay = Relay(workload.broker, lambda _plan, role, nonce: alter(workload, role, nonce))
    identity = make_server_identity(stage.scene.now) if own_certificate else None
    endpoint = stage.serve(cast("EnclaveFacade", relay), identity)
    return lambda: stage.connect(MODEL_OWNER, endpoint)


def genuine(workload: Workload, role: str, nonce: bytes) -> AttestReply:
    return workload.broker.attest(workload.plan, role, nonce)


# Nonces.


@ATTACKS.add(
    "nonce-wrong", by=NETWORK, covers="wrong nonce", error=PolicyRefused, code="binding_mismatch"
)
def nonce_wrong(stage: Stage) -> Step:
    """Genuine evidence, but over a nonce of the attacker's."""
    return connect_through(stage, lambda workload, role, _: genuine(workload, role, b"a" * 32))


@ATTACKS.add(
    "nonce-wrong-size", by=EVALUATOR, covers="wrong nonce", error=SessionRefused, code="nonce_size"
)
def nonce_wrong_size(stage: Stage) -> Step:
    workload = stage.workload()
    return lambda: workload.broker.attest(workload.plan, EVALUATOR, b"n" * 31)


@ATTACKS.add(
    "nonce-of-another-role",
    by=NETWORK,
    covers="wrong nonce",
    error=PolicyRefused,
    code="binding_mismatch",
)
def nonce_of_another_role(stage: Stage) -> Step:
    """The right nonce, but the evidence says that the evaluator asked."""
    return connect_through(stage, lambda workload, _, nonce: genuine(workload, EVALUATOR, nonce))


@ATTACKS.add(
    "nonce-reused", by=EVALUATOR, covers="reused nonce", error=SessionRefused, code="nonce_reused"
)
def nonce_reused(stage: Stage) -> Step:
    workload = stage.workload()
    nonce = os.urandom(32)
    workload.broker.attest(workload.plan, MODEL_OWNER, nonce)
    return lambda: workload.broker.attest(workload.plan, EVALUATOR, nonce)


@ATTACKS.add(
    "evidence-replayed",
    by=HOST,
    covers="reused nonce",
    error=PolicyRefused,
    code="binding_mismatch",
)
def evidence_replayed(stage: Stage) -> Step:
    """Evidence that this very session gave to this very party before."""
    old: list[AttestReply] = []

    def replay(workload: Workload, role: str, nonce: bytes) -> AttestReply:
        if not old:
            old.append(genuine(workload, role, nonce))
        return old[0]

    step = connect_through(stage, replay)
    step()
    return step


@ATTACKS.add(
    "nonce-missing", by=HOST, covers="missing nonce", error=SessionRefused, code="nonce_missing"
)
def nonce_missing(stage: Stage) -> Step:
    workload = stage.workload()
    return lambda: workload.broker.attest(workload.plan, MODEL_OWNER, b"")


@ATTACKS.add(
    "nonce-missing-on-the-wire",
    by=NETWORK,
    covers="missing nonce",
    error=ChannelRefused,
    code="message_malformed",
)
def nonce_missing_on_the_wire(stage: Stage) -> Step:
    client = stage.channel(EVALUATOR, stage.serve(stage.workload().broker))
    return lambda: client.attest(b"")


@ATTACKS.add(
    "nonce-missing-in-the-binding",
    by=HOST,
    covers="missing nonce",
    error=GrantRefused,
    code="grant_nonce_missing",
)
def nonce_missing_in_the_binding(stage: Stage) -> Step:
    """Genuine evidence over the other party's nonce only: fresh to the other, not to this one."""
    workload = stage.workload()
    session = stage.connect(EVALUATOR, stage.serve(workload.broker))
    return lambda: grant_key(
        session.result,
        inputs=session.inputs,
        evidence_digest=session.result.evidence_digest,
        role=MODEL_OWNER,
        artifact="model",
        commitment=stage.scene.directory.plan.model.commitment,
        run=1,
        key=b"k" * 32,
        salt=b"s" * 32,
    )


@ATTACKS.add("nonce-flood", by=EVALUATOR, error=SessionRefused, code="evidence_exhausted")
def nonce_flood(stage: Stage) -> Step:
    workload = stage.workload()
    for _ in range(MAX_EVIDENCE_A_ROLE):
        workload.broker.attest(workload.plan, EVALUATOR, os.urandom(32))
    return lambda: workload.broker.attest(workload.plan, EVALUATOR, os.urandom(32))


# Relays.


@ATTACKS.add(
    "relay-own-tls-key",
    by=NETWORK,
    covers="evidence bound to another TLS key",
    error=BindingRefused,
    code="server_key_mismatch",
)
def relay_own_tls_key(stage: Stage) -> Step:
    """The relay ends TLS itself and passes the enclave's answer on as it is."""
    return connect_through(stage, genuine, own_certificate=True)


@ATTACKS.add(
    "relay-own-tls-key-claimed",
    by=NETWORK,
    covers="evidence bound to another TLS key",
    error=PolicyRefused,
    code="binding_mismatch",
)
def relay_own_tls_key_claimed(stage: Stage) -> Step:
    """The relay ends TLS itself and says that its key is the enclave's."""
    own = make_server_identity(stage.scene.now)
    workload = stage.workload()

    def answer(plan: str, role: str, nonce: bytes) -> AttestReply:
        reply = workload.broker.attest(plan, role, nonce)
        return replace(reply, tls_spki_sha256=own.spki_sha256)

    endpoint = stage.serve(cast("EnclaveFacade", Relay(workload.broker, answer)), own)
    return lambda: stage.connect(MODEL_OWNER, endpoint)


@ATTACKS.add(
    "relay-own-hpke-key",
    by=HOST,
    covers="evidence bound to another HPKE key",
    error=PolicyRefused,
    code="binding_mismatch",
)
def relay_own_hpke_key(stage: Stage) -> Step:
    own = public_bytes(generate_private())
    return connect_through(stage, lambda *asked: replace(genuine(*asked), hpke_key=own))


@ATTACKS.add(
    "relay-own-signing-key",
    by=HOST,
    covers="evidence bound to another signing key",
    error=PolicyRefused,
    code="binding_mismatch",
)
def relay_own_signing_key(stage: Stage) -> Step:
    own = print_signing_key(ec.generate_private_key(ec.SECP256R1()).public_key())
    return connect_through(stage, lambda *asked: replace(genuine(*asked), signing_key=own))


@ATTACKS.add(
    "relay-other-plan",
    by=EVALUATOR,
    covers="evidence bound to another plan (relay)",
    error=PolicyRefused,
    code="binding_mismatch",
)
def relay_other_plan(stage: Stage) -> Step:
    """A session of another plan of the same parties, passed off as one of this plan."""
    other = stage.scene.other_directory
    return connect_through(
        stage,
        lambda workload, role, nonce: workload.broker.attest(other.plan.digest, role, nonce),
        beside=(other,),
    )


@ATTACKS.add("relay-other-session", by=HOST, error=PolicyRefused, code="binding_mismatch")
def relay_other_session(stage: Stage) -> Step:
    return connect_through(stage, lambda *asked: replace(genuine(*asked), session="00" * 16))


@ATTACKS.add("relay-other-enclave", by=NETWORK, error=PolicyRefused, code="binding_mismatch")
def relay_other_enclave(stage: Stage) -> Step:
    """Evidence of a second, honest enclave of the same plan: cuckoo evidence."""
    second = stage.workload()

    def cuckoo(workload: Workload, role: str, nonce: bytes) -> AttestReply:
        evidence = second.broker.attest(second.plan, role, nonce).evidence
        return replace(genuine(workload, role, os.urandom(32)), evidence=evidence)

    return connect_through(stage, cuckoo)


@ATTACKS.add(
    "server-certificate-swapped",
    by=NETWORK,
    error=ChannelRefused,
    code="server_certificate_changed",
)
def server_certificate_swapped(stage: Stage) -> Step:
    """Another certificate than the pinned one, once the party begins to speak."""
    workload = stage.workload()
    honest = fetch_server_certificate(stage.serve(workload.broker), 10)
    swapped = stage.serve(workload.broker, make_server_identity(stage.scene.now))
    client = stage.channel(MODEL_OWNER, swapped, certificate=honest)
    return client.get_session
