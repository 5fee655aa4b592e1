"""A gate behind real sockets, spoken to in frames as broker and sandbox do."""

from __future__ import annotations

import base64
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread
from typing import Any

from enclave.core.canonical import digest_bytes
from enclave.core.dsse import Envelope, parse_envelope
from enclave.core.errors import Refusal, rebuild_refusal
from enclave.core.receipt import build_receipt_statement
from enclave.core.run_facts import RunFacts, SealedRelease
from enclave.workload.frames import receive_frame, send_frame
from enclave.workload.gate.room import run
from tests.core.builders import World, b64, frame_json, print_json
from tests.core.sessions import SESSION, SLOT, Session, make_facts, open_session

SECONDS = 20


class GateUnderTest:
    """Both ends of a gate: `control` is the broker's, `sandbox` the eval code's."""

    def __init__(self, world: World, settings: Mapping[str, Any] | None = None) -> None:
        self.world = world
        self.status: int | None = None
        self.control, there = socket.socketpair()
        self.sandbox, inside = socket.socketpair()
        self.control.settimeout(SECONDS)

        def serve() -> None:
            with there, inside:
                self.status = run(control=there, result=inside, settings=settings or {})

        self.thread = Thread(target=serve, daemon=True)
        self.thread.start()

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """One request; raises the gate's refusal."""
        send_frame(self.control, message)
        return self.hear()

    def hear(self) -> dict[str, Any]:
        answer, _ = receive_frame(self.control)
        if answer["op"] == "refused":
            refusal = answer["refusal"]
            raise rebuild_refusal(refusal.pop("stage"), refusal.pop("code"), **refusal)
        return answer

    def open(self, **changes: Any) -> bytes:
        """Open the session; returns the receipt key's SPKI."""
        message = {
            "op": "open",
            "session": SESSION,
            "plan": b64(self.world.plan.to_bytes()),
            "policy": b64(self.world.policy.to_bytes()),
            **changes,
        }
        return base64.b64decode(self.ask(message)["signing_key"])

    def give(self, frame: bytes | dict[str, Any]) -> None:
        """The sandbox's one frame, then its end."""
        data = frame if isinstance(frame, bytes) else print_json(frame)
        self.sandbox.sendall(struct.pack(">I", len(data)) + data)
        self.sandbox.close()

    def release(self, **changes: Any) -> dict[str, Any]:
        return self.ask({"op": "release", "run": 1, "slot": SLOT, **changes})

    def sign(self, statement: bytes) -> Envelope:
        answer = self.ask({"op": "sign", "statement": b64(statement)})
        return parse_envelope(base64.b64decode(answer["envelope"]), max_payload=2**20)

    def close(self) -> int | None:
        """The broker goes away; returns the gate's exit status."""
        self.control.close()
        self.sandbox.close()
        self.thread.join(SECONDS)
        return self.status


@contextmanager
def open_gate(world: World) -> Iterator[GateUnderTest]:
    gate = GateUnderTest(world)
    try:
        yield gate
    finally:
        gate.close()


def facts_of(gate: GateUnderTest, signing_key: bytes, answer: Mapping[str, Any]) -> RunFacts:
    """What the broker states about a run that this gate released; evidence is over its key."""
    known = open_session(gate.world)
    inputs = replace(known.inputs, signing_key=signing_key)
    session: Session = replace(known, inputs=inputs)
    releases = tuple(
        SealedRelease(view["view"], view["role"], sha256(view["sealed"]), size(view["sealed"]))
        for view in answer["views"]
    )
    return replace(make_facts(gate.world, session), releases=releases)


def sha256(sealed: str) -> str:
    return digest_bytes(base64.b64decode(sealed))


def size(sealed: str) -> int:
    return len(base64.b64decode(sealed))


def released(world: World) -> tuple[GateUnderTest, RunFacts]:
    """A gate that released the demo result, and the facts to sign."""
    gate = GateUnderTest(world)
    key = gate.open()
    gate.give(frame_json())
    return gate, facts_of(gate, key, gate.release())


def statement(facts: RunFacts) -> bytes:
    return build_receipt_statement(facts)


def code_of(action: Any) -> str:
    """The code of a refusal, or `ok`."""
    try:
        action()
    except Refusal as refusal:
        return f"{refusal.stage}:{refusal.code}"
    return "ok"
