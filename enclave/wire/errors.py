"""Refusals of the channel itself."""

from __future__ import annotations

from enclave.core.errors import Refusal


class ChannelRefused(Refusal):
    """The channel can not carry the call (codes in docs/spec/wire.md)."""

    stage = "channel"
