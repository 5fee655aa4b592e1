"""What the server refuses before any method runs, and what it offers beside its methods."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status

from enclave.clients.channel.bootstrap import fetch_server_certificate
from enclave.clients.channel.client import EnclaveClient
from enclave.wire import methods
from enclave.wire.messages import Progress
from enclave.wire.refusals import parse_status
from enclave.wire.requests import PayloadRequest, PlanRequest, RunRequest
from enclave.wire.transport import MAX_CALL_SECONDS, MAX_REQUEST_BYTES, client_options
from enclave.workload.service.peers import MAX_LIVE_CALLS, refuse_unpinnable
from tests.core.builders import PartyKeys, expect_refusal, make_certificate, make_party
from tests.wire.enclaves import Enclave, WireWorld, certificate_pem, key_pem, outcome
from tests.wire.test_calls import delegate


def raw_channel(
    enclave: Enclave, keys: PartyKeys, certificate: bytes | None = None
) -> grpc.Channel:
    root = x509.load_der_x509_certificate(fetch_server_certificate(enclave.endpoint, 10))
    credentials = grpc.ssl_channel_credentials(
        root.public_bytes(Encoding.PEM), key_pem(keys), certificate or certificate_pem(keys)
    )
    return grpc.secure_channel(enclave.endpoint, credentials, options=client_options())


def typed_code(enclave: Enclave, keys: PartyKeys, data: bytes, timeout: float | None) -> str:
    with raw_channel(enclave, keys) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(methods.ATTEST.path)(data, timeout=timeout)
    typed = parse_status(caught.value)
    return typed[0].code if typed else caught.value.code().name


def test_deadline_is_demanded(enclave_server: Enclave, wire_world: WireWorld) -> None:
    data = methods.ATTEST.print_request(PayloadRequest(wire_world.plan.digest, b"n" * 32))
    owner = wire_world.owner
    assert typed_code(enclave_server, owner, data, None) == "deadline_missing"
    assert typed_code(enclave_server, owner, data, MAX_CALL_SECONDS * 2) == "deadline_too_long"
    assert enclave_server.facade.asked == []


@pytest.mark.parametrize(
    "data", [b"", b"\xff" * 40, b"\x0a\x20" + b"p" * 31, b"\x0a\x02pp\x12\x20" + b"n" * 32]
)
def test_malformed_messages(enclave_server: Enclave, wire_world: WireWorld, data: bytes) -> None:
    assert typed_code(enclave_server, wire_world.owner, data, 5) == "message_malformed"


def test_nonce_of_another_size(owner: EnclaveClient) -> None:
    assert outcome(lambda: owner.attest(b"n" * 31)) == "message_malformed"


def test_oversize_message(
    enclave_server: Enclave, owner: EnclaveClient, wire_world: WireWorld
) -> None:
    oversize = b"x" * (MAX_REQUEST_BYTES + 1)
    assert outcome(lambda: owner.submit_approval(oversize)) == "message_too_large"
    # A client that does not look at its own messages meets the server's cap.
    options = [option for option in client_options() if option[0] != "grpc.max_send_message_length"]
    root = x509.load_der_x509_certificate(fetch_server_certificate(enclave_server.endpoint, 10))
    credentials = grpc.ssl_channel_credentials(
        root.public_bytes(Encoding.PEM),
        key_pem(wire_world.owner),
        certificate_pem(wire_world.owner),
    )
    with grpc.secure_channel(enclave_server.endpoint, credentials, options=options) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(methods.SUBMIT_APPROVAL.path)(oversize, timeout=10)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert enclave_server.facade.asked == []
    assert outcome(owner.get_session) == "ok"


def test_health(enclave_server: Enclave, wire_world: WireWorld) -> None:
    with raw_channel(enclave_server, wire_world.auditor) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", methods.SERVICE):
            reply = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as caught:
            list(stub.Watch(health_pb2.HealthCheckRequest(), timeout=5))
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_health_knows_no_delegates(enclave_server: Enclave, wire_world: WireWorld) -> None:
    stranger = wire_world.stranger
    leaf = delegate(wire_world.owner, stranger.tls_key, "Delegate")
    with (
        raw_channel(enclave_server, stranger, leaf) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_health_demands_a_deadline_and_says_so_typed(
    enclave_server: Enclave, wire_world: WireWorld
) -> None:
    with (
        raw_channel(enclave_server, wire_world.owner) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    status = rpc_status.from_call(caught.value)
    assert status is not None
    detail = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(detail)
    assert detail.reason == "deadline_missing"


def list_services(enclave: Enclave, keys: PartyKeys) -> set[str]:
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    with raw_channel(enclave, keys) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        replies = list(stub.ServerReflectionInfo(iter([request]), timeout=5))
    return {service.name for service in replies[0].list_services_response.service}


def test_reflection_only_outside_production(wire_world: WireWorld, tmp_path: Path) -> None:
    with Enclave(wire_world, tmp_path, production=False) as enclave:
        assert methods.SERVICE in list_services(enclave, wire_world.owner)
    with Enclave(wire_world, tmp_path, production=True) as enclave:
        with pytest.raises(grpc.RpcError) as caught:
            list_services(enclave, wire_world.owner)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("version", "accepted"), [(ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_3, True)]
)
def test_tls_version(
    enclave_server: Enclave,
    wire_world: WireWorld,
    tmp_path: Path,
    version: ssl.TLSVersion,
    accepted: bool,
) -> None:
    pair = tmp_path / "pair.pem"
    pair.write_bytes(key_pem(wire_world.owner) + certificate_pem(wire_world.owner))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(pair)
    context.set_alpn_protocols(["h2"])
    plain = socket.create_connection(("127.0.0.1", enclave_server.server.port), 5)
    if accepted:
        with context.wrap_socket(plain) as secure:
            assert secure.version() == "TLSv1.3"
    else:
        with plain, pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(plain)


def test_removed_plan_cuts_live_calls(enclave_server: Enclave, wire_world: WireWorld) -> None:
    """gRPC keeps open connections and streams after a root is gone."""
    facade = enclave_server.facade
    facade.progress = [Progress("run", 1, 9, "running")]
    with raw_channel(enclave_server, wire_world.owner) as channel:
        request = methods.WATCH_RUN.print_request(RunRequest(wire_world.plan.digest, 1))
        call = channel.unary_stream(methods.WATCH_RUN.path)(request, timeout=60)
        next(call)
        del facade.registered[wire_world.plan.digest]
        enclave_server.server.plans_changed()
        started = time.monotonic()
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert caught.value.code() == grpc.StatusCode.CANCELLED
        assert time.monotonic() - started < 5
        again = channel.unary_unary(methods.GET_SESSION.path)
        data = methods.GET_SESSION.print_request(PlanRequest(wire_world.plan.digest))
        with pytest.raises(grpc.RpcError) as caught:
            again(data, timeout=5)
        typed = parse_status(caught.value)
        assert typed is not None
        assert typed[0].code == "peer_unknown"
    # With no plan registered nobody gets in at all.
    with enclave_server.client(wire_world.owner) as client:
        assert outcome(client.get_session) == "enclave_refused_connection"


def test_removed_party_without_notice(enclave_server: Enclave, wire_world: WireWorld) -> None:
    """Even if nobody told the server: the next item of a live stream is refused."""
    facade = enclave_server.facade
    facade.progress = [Progress("run", 1, 9, "running")]
    with enclave_server.client(wire_world.owner) as client:
        watching = client.watch_run(1)
        next(watching)
        del facade.registered[wire_world.plan.digest]
        assert outcome(lambda: list(watching)) == "peer_unknown"


def test_one_caller_can_not_hold_every_thread(
    enclave_server: Enclave, wire_world: WireWorld
) -> None:
    enclave_server.facade.progress = [Progress("run", 1, 9, "running")]
    with (
        enclave_server.client(wire_world.owner) as greedy,
        enclave_server.client(wire_world.evaluator) as other,
    ):
        watching = [greedy.watch_run(1) for _ in range(MAX_LIVE_CALLS)]
        for each in watching:
            next(each)
        assert outcome(greedy.start_run) == "caller_busy"
        assert outcome(other.start_run) == "ok"
        watching[0].close()
        assert outcome(greedy.get_session) == "ok"  # idempotent: retried until the place is free


def test_silent_streams_can_not_hold_every_thread(
    enclave_server: Enclave, wire_world: WireWorld
) -> None:
    """An upload that never sends its first message has no plan yet, but it has a caller."""
    ended = threading.Event()

    def say_nothing() -> Iterator[bytes]:
        ended.wait(60)
        yield from ()

    with (
        raw_channel(enclave_server, wire_world.owner) as channel,
        enclave_server.client(wire_world.evaluator) as other,
    ):
        upload = channel.stream_stream(methods.UPLOAD.path)
        silent = [upload(say_nothing(), timeout=60) for _ in range(32)]
        time.sleep(1)
        assert outcome(other.start_run) == "ok"
        codes = [parse_status(call.exception(5)) for call in silent if call.done()]
        assert len(codes) >= 32 - MAX_LIVE_CALLS
        assert {typed[0].code for typed in codes if typed is not None} <= {"caller_busy"}
        ended.set()


def test_certificate_subject_of_another_party(
    enclave_server: Enclave, wire_world: WireWorld
) -> None:
    """A second root with a known subject would not be found by TLS: refused at the door."""
    twin = make_party("evaluator", "Twin")
    twin = PartyKeys(
        twin.role, "Twin", twin.signing_key, twin.tls_key,
        make_certificate(twin.tls_key, "Evaluator"), twin.recipient_key,
    )  # fmt: skip
    plan = wire_world.edited_plan(parties=[wire_world.owner.party.fields(), twin.party.fields()])
    registered = enclave_server.facade.registered
    expect_refusal(
        "plan_certificate_subject_taken", lambda: refuse_unpinnable(plan, dict(registered))
    )
    refuse_unpinnable(wire_world.plan, dict(registered))
    # Registered all the same: the first keeps its place, the second fails closed.
    registered[plan.digest] = plan
    enclave_server.server.plans_changed()
    first = min(registered)
    for digest, keys in ((wire_world.plan.digest, wire_world.evaluator), (plan.digest, twin)):
        with enclave_server.client(keys, plan=digest) as client:
            expected = "ok" if digest == first else "enclave_refused_connection"
            assert outcome(client.get_session) == expected


def test_connections_in_parallel(enclave_server: Enclave, wire_world: WireWorld) -> None:
    failures: list[str] = []

    def call() -> None:
        with enclave_server.client(wire_world.auditor) as client:
            for _ in range(5):
                code = outcome(client.get_session)
                if code != "ok":
                    failures.append(code)

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
