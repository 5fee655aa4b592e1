"""Limits and options that server and clients share."""

from __future__ import annotations

from enclave.wire.messages import SERVER_NAME

MAX_REQUEST_BYTES = 2 * 1024 * 1024 + 64 * 1024
"""The largest request: an index of 100 000 streams, evidence with its endorsements."""

MAX_REPLY_BYTES = 16 * 1024 * 1024
"""The largest reply: a receipt with several parties' evidence."""

MAX_CALL_SECONDS = 600.0
MAX_STREAM_SECONDS = 24 * 3600.0
"""Deadlines beyond these are refused, so that no call holds a thread for ever."""

MAX_CONNECTIONS = 256
"""Connections the server holds at a time: a flood must not take the descriptors of a run."""

HANDSHAKE_SECONDS = 10
"""How long a connection may take to say who it is."""

_KEEPALIVE_MS = 30_000
_KEEPALIVE_TIMEOUT_MS = 20_000

Option = tuple[str, int | str]


def server_options() -> list[Option]:
    """Channel arguments of the server."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
        ("grpc.max_send_message_length", MAX_REPLY_BYTES),
        ("grpc.max_metadata_size", 16 * 1024),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.http2.min_ping_interval_without_data_ms", _KEEPALIVE_MS // 2),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.max_concurrent_streams", 64),
        ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
    ]


def client_options() -> list[Option]:
    """Channel arguments of a client; the name override goes with the pinned certificate."""
    return [
        ("grpc.ssl_target_name_override", SERVER_NAME),
        # A subchannel of its own: another client's connection carries another identity.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_receive_message_length", MAX_REPLY_BYTES),
        ("grpc.max_send_message_length", MAX_REQUEST_BYTES),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
    ]
