"""The gRPC server of the network compartment."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health, health_pb2
from grpc_status import rpc_status

from enclave.core.errors import Refusal
from enclave.wire.allocator import keep_memory_flat
from enclave.wire.errors import ChannelRefused
from enclave.wire.methods import SERVICE
from enclave.wire.refusals import describe_refusal, print_status
from enclave.wire.transport import server_options
from enclave.workload.service.calls import CallBorder, first_message, refuse_deadline
from enclave.workload.service.facade import EnclaveFacade
from enclave.workload.service.identity import ServerIdentity
from enclave.workload.service.peers import PeerRegistry, caller_key
from enclave.workload.service.servicer import EnclaveServicer

_THREADS = 32
# Below the threads: a call that gRPC accepted always finds one.
_CONCURRENT_CALLS = 28
_STOP_SECONDS = 2.0
_HEALTH_SECONDS = 60.0
_TLS_HANDSHAKE_RECORD = 0x16


class RunningServer:
    """A server that is listening."""

    def __init__(self, server: grpc.Server, port: int, peers: PeerRegistry) -> None:
        self._server = server
        self._peers = peers
        self.port = port

    def plans_changed(self) -> None:
        """Call it after every change of `facade.plans()`: pins anew, cuts removed parties off."""
        self._peers.refresh()

    def stop(self, grace: float = _STOP_SECONDS) -> None:
        """Take no more calls, end live ones after `grace` seconds, and return then."""
        self._server.stop(grace).wait()


def serve_enclave(
    facade: EnclaveFacade, tls: ServerIdentity, listen: str, *, production: bool
) -> RunningServer:
    """Serve on `listen` (`host:port`, port 0 for any free one).

    Reflection is offered only outside production.  Raises ChannelRefused
    `listen_failed`, `tls12_accepted`.
    """
    keep_memory_flat()
    peers = PeerRegistry(facade.plans, tls)
    border = CallBorder(peers, production=production)
    server = grpc.server(
        ThreadPoolExecutor(_THREADS, thread_name_prefix="call"),
        options=server_options(),
        maximum_concurrent_rpcs=_CONCURRENT_CALLS,
    )
    handlers = EnclaveServicer(facade, border).handlers()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    _add_health(server, peers)
    if not production:
        _add_reflection(server)
    try:
        port = server.add_secure_port(listen, peers.credentials())
    except RuntimeError:
        port = 0
    if port == 0:
        raise ChannelRefused("listen_failed", expected="a free address", got=listen)
    server.start()
    try:
        _refuse_tls12(listen, port)
    except BaseException:
        server.stop(None)
        raise
    return RunningServer(server, port, peers)


def _add_health(server: grpc.Server, peers: PeerRegistry) -> None:
    """Health for parties: a stranger with a delegated certificate learns nothing here either.

    `Watch` is not offered: it would hold a call open for ever.  `Check` is admitted like
    every other call, before its message is waited for.
    """

    def check(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        try:
            refuse_deadline(context.time_remaining(), _HEALTH_SECONDS)
            key = caller_key(context)
            peers.refuse_stranger(key)
            with peers.admit(key, context):
                request = health_pb2.HealthCheckRequest.FromString(first_message(messages))
        except Refusal as refusal:
            _, status = print_status(describe_refusal(refusal))
            context.abort_with_status(rpc_status.to_status(status))
        except Exception:  # noqa: BLE001 -- whatever it was, no answer
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "request_malformed")
        if request.service not in {"", SERVICE}:
            # The code that the health protocol itself asks for.
            context.abort(grpc.StatusCode.NOT_FOUND, "service_unknown")
        reply = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)
        return bytes(reply.SerializeToString())

    handlers = {"Check": grpc.stream_unary_rpc_method_handler(check)}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(health.SERVICE_NAME, handlers),)
    )


def _add_reflection(server: grpc.Server) -> None:
    from grpc_reflection.v1alpha import reflection

    names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)


def _refuse_tls12(listen: str, port: int) -> None:
    """Offer TLS 1.2 to the server itself: an answer with a handshake record is a refusal.

    gRPC has no option for it: `enclave.wire` sets an environment variable that must be
    there before the C core is loaded.  Somebody may have imported grpc first.
    """
    host = listen.rpartition(":")[0].strip("[]")
    host = {"": "localhost", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent: only the first answer is looked at
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    probe = context.wrap_bio(incoming, outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        probe.do_handshake()
    first = b""
    with socket.create_connection((host, port), timeout=5) as connection:
        connection.sendall(outgoing.read())
        with contextlib.suppress(ConnectionError):  # a refusal may come as a reset
            first = connection.recv(1)
    if first == bytes([_TLS_HANDSHAKE_RECORD]):
        raise ChannelRefused(
            "tls12_accepted",
            expected="TLS 1.3 only",
            hint="import enclave.wire before anything imports grpc",
        )
