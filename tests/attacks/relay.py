"""A machine in the middle: a real server that forwards to a real broker and alters answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from enclave.wire.messages import AttestReply
from enclave.workload.broker.facade import Broker

Answer = Callable[[str, str, bytes], AttestReply]


class Relay:
    """The broker's facade, but `attest` is answered by the attacker."""

    def __init__(self, broker: Broker, answer: Answer) -> None:
        self._broker = broker
        self._answer = answer

    def attest(self, plan: str, role: str, nonce: bytes) -> AttestReply:
        return self._answer(plan, role, nonce)

    def plans(self) -> Any:
        return self._broker.plans()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)
