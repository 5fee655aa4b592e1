"""Every RPC with every role, and with callers that are none."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from enclave.clients.channel.client import EnclaveClient
from enclave.core.canonical import print_canonical
from enclave.core.errors import SessionRefused
from enclave.core.grant import KEY_SIZE, SALT_SIZE, KeyGrant
from enclave.core.hpke import SEAL_OVERHEAD
from enclave.wire import methods
from enclave.wire.messages import Progress
from enclave.workload.service.roles import ALLOWED_ROLES
from tests.core.builders import PartyKeys
from tests.wire.enclaves import COMMITMENTS, SESSION, Enclave, WireWorld, outcome

ROLES = ("model_owner", "evaluator", "reviewer", "auditor")
BOTH = ("model_owner", "evaluator")
OWNER = ("model_owner",)
EVALUATOR = ("evaluator",)


def grant(artifact: str) -> bytes:
    sealed = b"s" * (KEY_SIZE + SALT_SIZE + SEAL_OVERHEAD)
    document = KeyGrant(
        "ab" * 32, SESSION, "cd" * 32, "model_owner", artifact, COMMITMENTS[artifact], 1, sealed
    )
    return document.to_bytes()


CALLS: dict[str, tuple[Callable[[EnclaveClient], object], tuple[str, ...]]] = {
    "GetSession": (lambda c: c.get_session(), ROLES),
    "GetPlan": (lambda c: c.get_plan(), ROLES),
    "Attest": (lambda c: c.attest(b"n" * 32), ROLES),
    "GetFindings": (lambda c: c.get_findings(), ROLES),
    "SubmitApproval": (lambda c: c.submit_approval(b"approval"), BOTH),
    "SubmitPartyEvidence": (lambda c: c.submit_party_evidence(b"evidence"), BOTH),
    "RenewSession": (lambda c: c.renew_session(), BOTH),
    "StartRun": (lambda c: c.start_run(), BOTH),
    "GetUploadStatus/model": (lambda c: c.get_upload_status("model"), OWNER),
    "GetUploadStatus/suite": (lambda c: c.get_upload_status("suite"), EVALUATOR),
    "GetUploadStatus/bundle": (lambda c: c.get_upload_status("bundle"), EVALUATOR),
    "Upload/model": (lambda c: upload_nothing(c, "model"), OWNER),
    "Upload/suite": (lambda c: upload_nothing(c, "suite"), EVALUATOR),
    "Upload/bundle": (lambda c: upload_nothing(c, "bundle"), EVALUATOR),
    "ForgetSegment/model": (lambda c: forget(c, "model"), OWNER),
    "ForgetSegment/suite": (lambda c: forget(c, "suite"), EVALUATOR),
    "SubmitGrant/model": (lambda c: c.submit_grant(grant("model")), OWNER),
    "SubmitGrant/suite": (lambda c: c.submit_grant(grant("suite")), EVALUATOR),
    "SubmitGrant/bundle": (lambda c: c.submit_grant(grant("bundle")), EVALUATOR),
    "WatchRun": (lambda c: list(c.watch_run(1)), ROLES),
    "GetRelease/summary": (lambda c: c.get_release(1, "summary"), BOTH),
    "GetRelease/unknown": (lambda c: c.get_release(1, "unknown"), ()),
    "GetReceipt": (lambda c: c.get_receipt(1), ROLES),
}


def upload_nothing(client: EnclaveClient, artifact: str) -> None:
    """An upload that the store refuses for its index, once the border let it in."""
    index = print_canonical({"type": "nothing"})
    code = outcome(lambda: list(client.exchange_upload(artifact, index, iter(()))))
    if not code.startswith("document_"):
        raise SessionRefused(code)


def forget(client: EnclaveClient, artifact: str) -> None:
    code = outcome(lambda: client.forget_segment(artifact, 0, 0))
    if code != "upload_segment_unknown":
        raise SessionRefused(code)


@pytest.fixture(scope="module")
def running(wire_world: WireWorld, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enclave]:
    with Enclave(wire_world, tmp_path_factory.mktemp("store")) as enclave:
        enclave.facade.progress = [Progress("run", 1, 1, "finished")]
        yield enclave


def test_every_method_is_called() -> None:
    assert {name.split("/")[0] for name in CALLS} == set(ALLOWED_ROLES)
    assert len(CALLS) >= 23


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("call", CALLS)
def test_role(running: Enclave, wire_world: WireWorld, call: str, role: str) -> None:
    action, allowed = CALLS[call]
    before = len(running.facade.asked)
    with running.client(wire_world.parties[role]) as client:
        code = outcome(lambda: action(client))
    assert code == ("ok" if role in allowed else "role_forbidden")
    if role not in allowed:
        assert len(running.facade.asked) == before, "the facade was asked"


def delegate(issuer: PartyKeys, key: ec.EllipticCurvePrivateKey, subject: str) -> bytes:
    """A leaf for another key, issued by a pinned party certificate."""
    parent = x509.load_der_x509_certificate(issuer.tls_certificate)
    now = dt.datetime.now(dt.UTC)
    leaf = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(parent.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(issuer.tls_key, SHA256())
    )
    return leaf.public_bytes(Encoding.PEM)


@pytest.mark.parametrize("call", CALLS)
def test_delegated_leaf(running: Enclave, wire_world: WireWorld, call: str) -> None:
    """gRPC lets it in: a certificate that a pinned one issued. The border does not."""
    stranger = wire_world.stranger
    leaf = delegate(wire_world.owner, stranger.tls_key, "Delegate")
    before = len(running.facade.asked)
    with running.client(stranger, certificate=leaf) as client:
        assert outcome(lambda: CALLS[call][0](client)) == "peer_unknown"
    assert len(running.facade.asked) == before


def test_unknown_certificate(running: Enclave, wire_world: WireWorld) -> None:
    with running.client(wire_world.stranger) as client:
        assert outcome(client.get_session) == "enclave_refused_connection"


def test_unknown_plan_reads_like_an_unknown_peer(running: Enclave, wire_world: WireWorld) -> None:
    with running.client(wire_world.owner, plan="ee" * 32) as client:
        assert outcome(client.get_session) == "peer_unknown"
        assert outcome(lambda: upload_nothing(client, "model")) == "peer_unknown"


def test_party_of_another_plan_only(wire_world: WireWorld, tmp_path: Path) -> None:
    other = wire_world.edited_plan(
        parties=[keys.party.fields() for keys in (wire_world.owner, wire_world.stranger)]
    )
    with Enclave(wire_world, tmp_path) as enclave:
        enclave.facade.registered[other.digest] = other
        enclave.server.plans_changed()
        with enclave.client(wire_world.stranger, plan=other.digest) as client:
            assert outcome(client.get_session) == "ok"
        with enclave.client(wire_world.stranger) as client:
            assert outcome(client.get_session) == "peer_unknown"


def test_domain_values_cross_unchanged(running: Enclave, wire_world: WireWorld) -> None:
    plan = wire_world.plan
    with running.client(wire_world.owner) as client:
        assert client.get_session() == running.facade.view_session(plan.digest)
        assert client.get_plan() == plan.to_bytes()
        expected = running.facade.attest(plan.digest, "model_owner", b"m" * 32)
        assert client.attest(b"m" * 32) == expected
        assert client.submit_party_evidence(b"evidence") == "cd" * 32
        assert client.start_run() == 1
        assert client.get_release(1, "summary") == b"sealed to model_owner"
        assert client.get_receipt(1) == b"receipt"
        client.submit_approval(b"envelope")
        assert running.facade.asked[-1] == (
            "submit_approval", plan.digest, "model_owner", b"envelope",
        )  # fmt: skip
        assert list(client.watch_run(1)) == [Progress("run", 1, 1, "finished")]


def test_method_table_is_the_proto_service() -> None:
    from enclave.wire.generated.doubleblind.v1 import enclave_pb2

    service = enclave_pb2.DESCRIPTOR.services_by_name["Enclave"]
    assert {method.name for method in service.methods} == set(ALLOWED_ROLES)
    assert service.full_name == methods.SERVICE == "doubleblind.v1.Enclave"
