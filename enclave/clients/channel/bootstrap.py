"""Fetching the server's certificate before it can be trusted."""

from __future__ import annotations

import socket
import time

from cryptography.hazmat.primitives.serialization import Encoding
from OpenSSL import SSL

from enclave.wire.errors import ChannelRefused
from enclave.wire.messages import SERVER_NAME

_ALPN = b"h2"
_CHUNK_BYTES = 16 * 1024


def fetch_server_certificate(endpoint: str, timeout: float) -> bytes:
    """The DER certificate that `host:port` presents on TLS 1.3 now.

    It proves nothing by itself: pin it in a channel, ask for evidence inside, and
    check that the evidence binds its SPKI.  Raises ChannelRefused
    `endpoint_malformed`, `enclave_unreachable`, `enclave_timeout`,
    `server_handshake_failed`.
    """
    deadline = time.monotonic() + timeout
    try:
        with socket.create_connection(split_endpoint(endpoint), timeout) as connection:
            return _read_certificate(connection, deadline, endpoint)
    except TimeoutError:
        raise timed_out(endpoint, timeout) from None
    except OSError:
        raise unreachable(endpoint) from None


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`."""
    host, _, port = endpoint.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ChannelRefused("endpoint_malformed", expected="host:port")
    return host, int(port)


def timed_out(endpoint: str, seconds: float) -> ChannelRefused:
    """The refusal `enclave_timeout`."""
    return ChannelRefused(
        "enclave_timeout",
        expected=f"an answer of {endpoint} within {seconds:.0f} seconds",
        hint="is the enclave busy, or a firewall in the way?",
    )


def unreachable(endpoint: str) -> ChannelRefused:
    """The refusal `enclave_unreachable`."""
    return ChannelRefused(
        "enclave_unreachable",
        expected=f"an enclave listening on {endpoint}",
        hint="is the enclave started, and are address and port right?",
    )


def _read_certificate(connection: socket.socket, deadline: float, endpoint: str) -> bytes:
    failed = ChannelRefused(
        "server_handshake_failed",
        expected=f"TLS 1.3 and HTTP/2 on {endpoint}",
        hint="does something else listen on this port?",
    )
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_min_proto_version(SSL.TLS1_3_VERSION)
    context.set_verify(SSL.VERIFY_NONE)  # the certificate is what is asked for
    context.set_alpn_protos([_ALPN])
    session = SSL.Connection(context, None)
    session.set_tlsext_host_name(SERVER_NAME.encode())
    session.set_connect_state()
    while True:
        is_finished = False
        try:
            session.do_handshake()
            is_finished = True
        except SSL.WantReadError:
            pass
        except SSL.Error:
            raise failed from None
        _send_pending(session, connection)
        if is_finished:
            break
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        received = connection.recv(_CHUNK_BYTES)
        if not received:
            raise failed
        session.bio_write(received)
    certificate = session.get_peer_certificate(as_cryptography=True)
    if certificate is None or session.get_alpn_proto_negotiated() != _ALPN:
        raise failed
    return certificate.public_bytes(Encoding.DER)


def _send_pending(session: SSL.Connection, connection: socket.socket) -> None:
    while True:
        try:
            connection.sendall(session.bio_read(_CHUNK_BYTES))
        except SSL.WantReadError:
            return
