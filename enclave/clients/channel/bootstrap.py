"""Fetching the server's certificate before it can be trusted."""

from __future__ import annotations


def fetch_server_certificate(endpoint: str, timeout: float) -> bytes:
    """The DER certificate that `host:port` presents on TLS 1.3 now.

    It proves nothing by itself: pin it in a channel, ask for evidence inside, and
    check that the evidence binds its SPKI.  Raises ChannelRefused
    `enclave_unreachable`, `enclave_timeout`, `server_handshake_failed`.
    """
    raise NotImplementedError
