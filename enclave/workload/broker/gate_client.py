"""The broker's side of the gate."""

from __future__ import annotations

import base64
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from enclave.core.dsse import Envelope, parse_envelope
from enclave.core.errors import Refusal, RunRefused, rebuild_refusal
from enclave.core.plan import Plan
from enclave.core.release import SealedView
from enclave.core.result_policy import ResultPolicy
from enclave.workload.frames import receive_frame, send_frame
from enclave.workload.isolation.limits import GIB, MIB, Limits
from enclave.workload.launcher.client import Compartment, CompartmentSpec, LauncherClient

_START_SECONDS = 30.0
_ANSWER_SECONDS = 60.0
_MAX_ENVELOPE = 2 * MIB


@dataclass(frozen=True)
class Release:
    """What the gate let out of one run."""

    views: tuple[SealedView, ...]
    completed: int
    failed: int
    bits: int


class GateClient:
    """One gate compartment: it lives as long as its session."""

    def __init__(self, launcher: LauncherClient, name: str, wall_seconds: int) -> None:
        """Start a gate. `result_end` is the sandbox's end of the result channel."""
        self.result_end, there = socket.socketpair()
        limits = Limits(wall_seconds=wall_seconds, memory_bytes=2 * GIB, processes=64)
        spec = CompartmentSpec("gate", name, limits)
        try:
            self._compartment: Compartment = launcher.start(spec, {"result": there.fileno()})
        finally:
            there.close()
        self._compartment.wait_sealed(_START_SECONDS)

    def open(self, session: str, plan: Plan, policy: ResultPolicy) -> bytes:
        """Give the gate its session; returns the receipt key's SPKI DER."""
        answer = self._ask(
            {
                "op": "open",
                "session": session,
                "plan": _b64(plan.to_bytes()),
                "policy": _b64(policy.to_bytes()),
            },
            "opened",
        )
        return base64.b64decode(answer["signing_key"])

    def request_release(self, run: int, slot: str) -> None:
        """Let the gate wait for the result; `receive_release` takes its answer."""
        send_frame(self._compartment.control, {"op": "release", "run": run, "slot": slot})

    def receive_release(self) -> Release:
        """The gate's decision; raises its refusal."""
        answer = self._receive("released")
        views = tuple(
            SealedView(view["view"], view["role"], base64.b64decode(view["sealed"]))
            for view in answer["views"]
        )
        return Release(views, answer["completed"], answer["failed"], answer["bits"])

    def sign(self, statement: bytes) -> Envelope:
        """The receipt's envelope, if the statement says what the gate released."""
        answer = self._ask({"op": "sign", "statement": _b64(statement)}, "signed")
        return parse_envelope(base64.b64decode(answer["envelope"]), max_payload=_MAX_ENVELOPE)

    def close_result_end(self) -> None:
        """Only the sandbox holds it from here: its end is then the gate's end of input."""
        self.result_end.close()

    def close(self) -> None:
        """End the gate; its key goes with it."""
        self.result_end.close()
        if self._compartment.exit is None:
            try:
                self._compartment.kill()
                self._compartment.wait(_START_SECONDS)
            except Refusal:
                pass  # gone already, or the launcher is: then everything is
        self._compartment.close()

    def _ask(self, message: Mapping[str, Any], expected: str) -> dict[str, Any]:
        send_frame(self._compartment.control, message)
        return self._receive(expected)

    def _receive(self, expected: str) -> dict[str, Any]:
        self._compartment.control.settimeout(_ANSWER_SECONDS)
        answer, _ = receive_frame(self._compartment.control)
        if answer.get("op") == "refused":
            refusal = dict(answer["refusal"])
            raise rebuild_refusal(refusal.pop("stage"), refusal.pop("code"), **refusal)
        if answer.get("op") != expected:
            raise RunRefused("gate_answer", expected=expected)
        return answer


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
