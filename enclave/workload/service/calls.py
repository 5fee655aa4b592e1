"""The border of a call: deadline, caller, role, typed refusals. Nothing untyped gets out."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc
from grpc_status import rpc_status

from attestation.errors import AttestationError
from enclave.core.errors import Refusal
from enclave.core.plan import Plan
from enclave.wire.errors import ChannelRefused
from enclave.wire.messages import RefusalDetail
from enclave.wire.methods import GET_FINDINGS, Method
from enclave.wire.refusals import describe_refusal, print_status
from enclave.wire.requests import AnyRequest
from enclave.wire.transport import MAX_CALL_SECONDS, MAX_STREAM_SECONDS
from enclave.workload.service.peers import Caller, PeerRegistry, caller_key
from enclave.workload.service.roles import refuse_wrong_role

Request = TypeVar("Request", bound=AnyRequest)
Reply = TypeVar("Reply")

_LOG = logging.getLogger(__name__)


class CallBorder:
    """Makes gRPC handlers of domain functions."""

    def __init__(self, peers: PeerRegistry, *, production: bool) -> None:
        self._peers = peers
        self._production = production
        self._guard = threading.Lock()
        self._latest: dict[tuple[str, bytes], RefusalDetail] = {}

    def latest_refusal(self, caller: Caller) -> RefusalDetail | None:
        """The caller's latest refusal on this plan, in full."""
        with self._guard:
            return self._latest.get((caller.plan, caller.spki_sha256))

    def unary(
        self, method: Method[Request, Reply], answer: Callable[[Caller, Request], Reply]
    ) -> Any:
        """A handler of a unary RPC.

        Like every handler here it takes a stream, which on the wire is the same: gRPC would
        wait for a unary call's message on a thread of ours before it asked us who calls, and
        a caller that never sends one could hold them all.
        """

        def handle(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            with self._admitted(method, messages, context, MAX_CALL_SECONDS) as (
                caller,
                _,
                request,
            ):
                return method.print_reply(answer(caller, request))
            raise RuntimeError("unreachable")  # the block above returns or aborts

        return grpc.stream_unary_rpc_method_handler(handle)

    def server_stream(
        self,
        method: Method[Request, Reply],
        answer: Callable[[Caller, Request], Iterator[Reply]],
    ) -> Any:
        """A handler of a server-streaming RPC; the caller is looked at again for each item."""

        def handle(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            with self._admitted(method, messages, context, MAX_STREAM_SECONDS) as (
                caller,
                _,
                request,
            ):
                for reply in answer(caller, request):
                    if not context.is_active():
                        return
                    self._peers.identify(caller.plan, caller.spki_sha256)
                    yield method.print_reply(reply)

        return grpc.stream_stream_rpc_method_handler(handle)

    def bidirectional(
        self,
        method: Method[Request, Reply],
        answer: Callable[[Caller, Request, Iterator[bytes]], Iterator[Reply]],
    ) -> Any:
        """A handler whose first message is the request; the rest goes to `answer` as bytes."""

        def handle(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            with self._admitted(method, messages, context, MAX_STREAM_SECONDS) as (
                caller,
                _,
                request,
            ):
                for reply in answer(caller, request, messages):
                    self._peers.identify(caller.plan, caller.spki_sha256)
                    yield method.print_reply(reply)

        return grpc.stream_stream_rpc_method_handler(handle)

    @contextlib.contextmanager
    def _admitted(
        self,
        method: Method[Request, Any],
        messages: Iterator[bytes],
        context: grpc.ServicerContext,
        longest: float,
    ) -> Iterator[tuple[Caller, Plan, Request]]:
        caller: Caller | None = None
        try:
            refuse_deadline(context.time_remaining(), longest)
            key = caller_key(context)
            self._peers.refuse_stranger(key)
            with self._peers.admit(key, context) as call:
                request = method.parse_request(first_message(messages))
                plan, caller = self._peers.join(call, request.plan, key)
                refuse_wrong_role(method.name, caller.role, plan, request)
                yield caller, plan, request
            return
        except (Refusal, AttestationError) as error:
            detail = describe_refusal(error)
        except Exception as error:  # noqa: BLE001 -- nothing untyped may get out
            self._log_unexpected(method.name, error)
            detail = describe_refusal(ChannelRefused("internal"))
        if caller is not None and method.name != GET_FINDINGS.name:
            with self._guard:
                self._latest[caller.plan, caller.spki_sha256] = detail
        _, status = print_status(detail)
        context.abort_with_status(rpc_status.to_status(status))

    def _log_unexpected(self, method: str, error: Exception) -> None:
        # The log is the host's to read: a message or a traceback can quote a secret.
        _LOG.error("internal error in %s: %s", method, type(error).__name__)
        if not self._production:
            _LOG.error("traceback (development only)", exc_info=error)


def first_message(messages: Iterator[bytes]) -> bytes:
    """The first message of a call; empty, so malformed, when the caller went without one."""
    try:
        return next(messages, b"")
    except grpc.RpcError:
        return b""


def refuse_deadline(remaining: float | None, longest: float) -> None:
    # gRPC says "no deadline" as a time beyond every calendar.
    if remaining is None or remaining > 10 * 365 * 86400:
        raise ChannelRefused("deadline_missing", expected="a deadline on every call")
    if remaining > longest + 1:
        raise ChannelRefused(
            "deadline_too_long",
            expected=f"at most {longest:.0f} seconds",
            got=f"{remaining:.0f} seconds",
        )
