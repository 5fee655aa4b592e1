"""The client's own errors: each situation has its code, retries are bounded and only where safe."""

from __future__ import annotations

import datetime as dt
import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from enclave.clients.channel.bootstrap import fetch_server_certificate, split_endpoint
from enclave.clients.channel.client import EnclaveClient, Timeouts
from enclave.core.errors import Refusal
from enclave.wire.messages import Progress
from enclave.workload.service.identity import make_server_identity
from tests.core.builders import expect_refusal
from tests.wire.enclaves import Enclave, WireWorld, certificate_pem, key_pem, outcome


def client_of(
    world: WireWorld,
    endpoint: str,
    certificate: bytes,
    timeouts: Timeouts = Timeouts(20, 60),  # noqa: B008
) -> EnclaveClient:
    return EnclaveClient(
        endpoint,
        certificate,
        client_key_pem=key_pem(world.owner),
        client_certificate_pem=certificate_pem(world.owner),
        plan=world.plan.digest,
        timeouts=timeouts,
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_fetched_certificate_is_the_servers(enclave_server: Enclave) -> None:
    der = fetch_server_certificate(enclave_server.endpoint, 10)
    identity = enclave_server.identity
    assert der == identity.certificate_der
    certificate = x509.load_der_x509_certificate(der)
    spki = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert hashlib.sha256(spki).digest() == identity.spki_sha256
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == ["enclave.invalid"]


@pytest.mark.parametrize("endpoint", ["", "host", "host:", ":1", "host:0", "host:65536", "host:x"])
def test_malformed_endpoint(endpoint: str) -> None:
    expect_refusal("endpoint_malformed", lambda: split_endpoint(endpoint))


def test_endpoint_forms() -> None:
    assert split_endpoint("[::1]:443") == ("::1", 443)
    assert split_endpoint("enclave.example:8443") == ("enclave.example", 8443)


def test_nobody_listens(wire_world: WireWorld) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    expect_refusal("enclave_unreachable", lambda: fetch_server_certificate(endpoint, 5))
    identity = make_server_identity(dt.datetime.now(dt.UTC))
    with client_of(wire_world, endpoint, identity.certificate_der) as client:
        started = time.monotonic()
        refusal = expect_refusal("enclave_unreachable", client.get_session)
        assert refusal.hint
        assert 2 < time.monotonic() - started < 15, "retried, and not for ever"
        started = time.monotonic()
        expect_refusal("enclave_unreachable", client.start_run)
        assert time.monotonic() - started < 2, "a run is never started twice"


@contextmanager
def listener_that(answer: bytes | None) -> Iterator[str]:
    """Something on a port that is no enclave: answers with bytes, or never (None)."""
    listener = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            if answer is None:
                held.append(connection)
                continue
            with closing(connection):
                connection.recv(4096)
                connection.sendall(answer)

    threading.Thread(target=accept, daemon=True).start()
    with closing(listener):
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    for connection in held:
        connection.close()


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x28"]
)
def test_something_else_listens(answer: bytes) -> None:
    with listener_that(answer) as endpoint:
        expect_refusal("server_handshake_failed", lambda: fetch_server_certificate(endpoint, 5))


def test_silent_listener() -> None:
    with listener_that(None) as endpoint:
        started = time.monotonic()
        expect_refusal("enclave_timeout", lambda: fetch_server_certificate(endpoint, 1))
        assert time.monotonic() - started < 3


def test_certificate_replaced_after_the_fetch(
    enclave_server: Enclave, wire_world: WireWorld
) -> None:
    """A relay with another key, or a restarted enclave: told apart from an outage."""
    other = make_server_identity(dt.datetime.now(dt.UTC))
    with client_of(wire_world, enclave_server.endpoint, other.certificate_der) as client:
        started = time.monotonic()
        refusal = expect_refusal("server_certificate_changed", client.get_session)
        assert time.monotonic() - started < 3, "not retried"
        assert "attest anew" in refusal.hint
    assert enclave_server.facade.asked == []


def test_restart_with_the_same_certificate_is_ridden_out(
    wire_world: WireWorld, tmp_path: Path
) -> None:
    identity = make_server_identity(dt.datetime.now(dt.UTC))
    port = free_port()
    with Enclave(wire_world, tmp_path, identity=identity, listen=f"127.0.0.1:{port}") as first:
        client = client_of(wire_world, first.endpoint, identity.certificate_der)
        client.get_session()
    revived: list[Enclave] = []

    def revive() -> None:
        time.sleep(0.7)
        revived.append(Enclave(wire_world, tmp_path, identity=identity, listen=f"127.0.0.1:{port}"))

    thread = threading.Thread(target=revive)
    thread.start()
    with client:
        client.get_session()
    thread.join()
    revived[0].server.stop(0)


def test_slow_facade_times_out(
    enclave_server: Enclave, wire_world: WireWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(_plan: str, _role: str) -> int:
        time.sleep(3)
        return 1

    monkeypatch.setattr(enclave_server.facade, "start_run", slow)
    certificate = enclave_server.identity.certificate_der
    with client_of(wire_world, enclave_server.endpoint, certificate, Timeouts(1, 5)) as client:
        expect_refusal("enclave_timeout", client.start_run)


def test_other_plan_bytes_are_refused(
    enclave_server: Enclave, owner: EnclaveClient, wire_world: WireWorld
) -> None:
    other = wire_world.edited_plan(title="Another title")
    enclave_server.facade.registered[wire_world.plan.digest] = other
    expect_refusal("plan_digest_mismatch", owner.get_plan)


def test_watch_ends_with_the_run(enclave_server: Enclave, owner: EnclaveClient) -> None:
    refusal = {"stage": "run", "code": "control_failed", "expected": "", "got": "", "hint": "h"}
    steps = [
        Progress("open", 1, 3, "running"),
        Progress("run", 7, 100, "running"),
        Progress("run", 7, 100, "refused", refusal),
    ]
    enclave_server.facade.progress = steps
    assert list(owner.watch_run(1)) == steps


def test_watch_that_never_says_the_end(
    enclave_server: Enclave, owner: EnclaveClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enclave.clients.channel.client._FIRST_DELAY", 0.01)
    enclave_server.facade.progress = []
    assert outcome(lambda: list(owner.watch_run(1))) == "watch_ended"


def test_terminal_escapes_do_not_cross(enclave_server: Enclave, owner: EnclaveClient) -> None:
    """A server is not trusted before its evidence is appraised: nor is its text."""
    enclave_server.facade.progress = [Progress("\x1b[2J", 1, 1, "finished")]
    expect_refusal("message_malformed", lambda: list(owner.watch_run(1)))
    enclave_server.facade.refusals["submit_approval"] = Refusal("some_rule", hint="a\x1b[2Jb")
    refusal = expect_refusal("some_rule", lambda: owner.submit_approval(b"x"))
    assert refusal.hint == "a?[2Jb"
