"""Failed calls as typed refusals."""

from __future__ import annotations

from typing import Any

import grpc

from enclave.clients.channel.bootstrap import fetch_server_certificate, timed_out, unreachable
from enclave.core.errors import Refusal
from enclave.wire.errors import ChannelRefused

_DIAGNOSIS_SECONDS = 5.0

PASSING_CODES = frozenset(
    {"enclave_unreachable", "enclave_refused_connection", "enclave_busy", "caller_busy"}
)
"""Refusals that may be gone in a moment: idempotent calls are tried again."""


def describe_failure(
    call: Any, endpoint: str, pinned_certificate: bytes, timeout: float
) -> ChannelRefused:
    """Why a call without a typed refusal failed."""
    code, details = call.code(), call.details() or ""
    if code == grpc.StatusCode.UNAVAILABLE:
        return _diagnose(endpoint, pinned_certificate)
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return timed_out(endpoint, timeout)
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
        if "larger than max" in details:
            return ChannelRefused("message_too_large", expected="a smaller message")
        return ChannelRefused("enclave_busy", expected="a free thread", hint="try again")
    if code == grpc.StatusCode.CANCELLED:
        return ChannelRefused(
            "call_cancelled",
            expected="a call until its end",
            hint="was the plan withdrawn, or the client closed?",
        )
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return ChannelRefused(
            "method_unknown", expected="an enclave of this version", hint="compare the versions"
        )
    return ChannelRefused("channel_failed", expected="an answer", got=code.name.lower())


def _diagnose(endpoint: str, pinned_certificate: bytes) -> ChannelRefused:
    """Look why nothing was reached; gRPC itself only says "unavailable"."""
    try:
        presented = fetch_server_certificate(endpoint, _DIAGNOSIS_SECONDS)
    except Refusal:
        return unreachable(endpoint)
    if presented != pinned_certificate:
        return ChannelRefused(
            "server_certificate_changed",
            expected="the certificate that was fetched first",
            got="another certificate",
            hint="the enclave was restarted, or something stands between: fetch and attest anew",
        )
    return ChannelRefused(
        "enclave_refused_connection",
        expected="a connection with this party's certificate",
        hint="is a plan with this party registered, and did the connection hold?",
    )
