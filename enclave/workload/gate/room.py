"""The gate: holds the receipt key and the result policy; its answers are the only way out.

Requests over `control` (frames), in this order, each at most once:
    {"op":"open","session","plan","policy"}   -> {"op":"opened","signing_key"}
    {"op":"release","run","slot"}             -> {"op":"released","views",…}
    {"op":"sign","statement"}                 -> {"op":"signed","envelope"}
or {"op":"refused","refusal"}.  The result frame comes over `result`, straight
from the sandbox: the broker never sees it.
"""

from __future__ import annotations

import base64
import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from enclave.core.budget import refuse_over_budget
from enclave.core.errors import ReceiptRefused, Refusal, ReleaseRefused, RunRefused
from enclave.core.fields import Fields
from enclave.core.plan import Plan, parse_plan
from enclave.core.receipt import sign_receipt
from enclave.core.receipt_rules import (
    refuse_inconsistent_facts,
    refuse_other_result_policy,
    verify_receipt_approvals,
)
from enclave.core.release import SealedView, parse_result, release_result, seal_release
from enclave.core.result_policy import ResultPolicy, parse_result_policy
from enclave.core.run_facts import RunFacts, SealedRelease
from enclave.core.run_facts_reading import read_run_facts
from enclave.core.signing_key import print_signing_key
from enclave.core.statement import read_statement
from enclave.core.vocabulary import ENCLAVE_RUN_TYPE, SESSION_SIZE
from enclave.workload.frames import receive_frame, send_frame
from enclave.workload.gate.codes import RESULT_MISSING, RUN_CODES

_LENGTH = struct.Struct(">I")


def run(*, control: socket.socket, result: socket.socket, settings: Mapping[str, Any]) -> int:
    """Serve one session; ends when the broker is gone."""
    if settings:
        return 1
    gate = Gate(result)
    while True:
        try:
            message, _ = receive_frame(control)
        except RunRefused:
            return 0
        try:
            answer = gate.obey(message)
        except Refusal as refusal:
            answer = {"op": "refused", "refusal": refusal.as_json()}
        except Exception:  # noqa: BLE001 - its text could carry the result
            answer = {"op": "refused", "refusal": ReleaseRefused("gate_failed").as_json()}
        try:
            send_frame(control, answer)
        except RunRefused:
            return 0


class Gate:
    """One session's gate: open, release once, sign once."""

    def __init__(self, result: socket.socket) -> None:
        self._result = result
        self._signing_key = ec.generate_private_key(ec.SECP256R1())
        self._plan: Plan | None = None
        self._policy: ResultPolicy | None = None
        self._session = ""
        self._released: _Released | None = None
        self._release_tried = False
        self._signed = False

    def obey(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """One request, one answer."""
        fields = Fields(message, "gate")
        operation = fields.constant("op", "open", "release", "sign")
        if operation == "open":
            return self._open(fields)
        if operation == "release":
            return self._release(fields)
        return self._sign(fields)

    def _open(self, fields: Fields) -> dict[str, Any]:
        if self._plan is not None:
            raise ReleaseRefused("gate_order", expected="one session a gate")
        session = fields.hex("session", SESSION_SIZE)
        plan = parse_plan(fields.base64("plan", max_size=2**20))
        policy = parse_result_policy(fields.base64("policy", max_size=2**20))
        fields.done()
        refuse_over_budget(plan, policy)
        self._plan, self._policy, self._session = plan, policy, session
        key = print_signing_key(self._signing_key.public_key())
        return {"op": "opened", "signing_key": base64.b64encode(key).decode()}

    def _release(self, fields: Fields) -> dict[str, Any]:
        if self._plan is None or self._policy is None or self._release_tried:
            raise ReleaseRefused("gate_order", expected="open, then release once")
        self._release_tried = True
        run_number = fields.integer("run", 1, self._plan.max_runs)
        slot = fields.text("slot", max_length=20)
        fields.done()
        frame = _receive_result(self._result, self._plan.limits.result_bytes)
        _refuse_failed_bundle(frame)
        parsed = parse_result(frame, self._plan, self._policy)
        del frame
        views = release_result(
            parsed,
            plan=self._plan,
            policy=self._policy,
            session=self._session,
            run=run_number,
            slot=slot,
        )
        sealed = seal_release(views, plan=self._plan, policy=self._policy)
        bits = refuse_over_budget(self._plan, self._policy).bits_per_run
        self._released = _Released(run_number, parsed.completed, parsed.failed, bits, sealed)
        return {"op": "released", **self._released.to_json()}

    def _sign(self, fields: Fields) -> dict[str, Any]:
        statement = fields.base64("statement", max_size=2**20)
        fields.done()
        if self._plan is None or self._policy is None or self._released is None or self._signed:
            raise ReceiptRefused("gate_order", expected="release, then sign once")
        facts = _read_facts(statement)
        self._released.refuse_other_facts(facts, self._plan, self._session)
        refuse_inconsistent_facts(facts)
        verify_receipt_approvals(facts)
        refuse_other_result_policy(facts, self._policy)
        envelope = sign_receipt(statement, self._signing_key)
        self._signed = True
        return {"op": "signed", "envelope": base64.b64encode(envelope.to_bytes()).decode()}


class _Released:
    """What this gate let out: a receipt that says otherwise is not signed."""

    def __init__(
        self, run: int, completed: int, failed: int, bits: int, views: tuple[SealedView, ...]
    ) -> None:
        self.run = run
        self.completed = completed
        self.failed = failed
        self.bits = bits
        self.views = views

    def to_json(self) -> dict[str, Any]:
        return {
            "completed": self.completed,
            "failed": self.failed,
            "bits": self.bits,
            "views": [
                {
                    "view": view.view,
                    "role": view.role,
                    "sealed": base64.b64encode(view.sealed).decode(),
                }
                for view in self.views
            ],
        }

    def refuse_other_facts(self, facts: RunFacts, plan: Plan, session: str) -> None:
        releases = tuple(
            SealedRelease(view.view, view.role, view.digest, len(view.sealed))
            for view in self.views
        )
        same = (
            facts.plan == plan
            and facts.session == session
            and (facts.run, facts.bits) == (self.run, self.bits)
            and (facts.completed, facts.failed) == (self.completed, self.failed)
            and facts.releases == releases
        )
        if not same:
            raise ReceiptRefused("receipt_other_release", expected="what this gate released")


def _read_facts(statement: bytes) -> RunFacts:
    parsed = read_statement(statement, ENCLAVE_RUN_TYPE, ("plan", "run"), max_bytes=2**20)
    return read_run_facts(parsed.predicate)


def _receive_result(result: socket.socket, limit: int) -> bytes:
    """One length-prefixed frame of at most `limit` bytes, raw: the reader judges its spelling."""
    head = _receive_exactly(result, _LENGTH.size)
    (size,) = _LENGTH.unpack(head)
    if size > limit:
        raise ReleaseRefused("result_too_large", expected="a frame within the plan's result_bytes")
    return _receive_exactly(result, size)


def _receive_exactly(result: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        try:
            part = result.recv(size - len(data))
        except OSError:
            part = b""
        if not part:
            raise RunRefused(RESULT_MISSING, expected="one result frame")
        data += part
    return bytes(data)


def _refuse_failed_bundle(frame: bytes) -> None:
    try:
        document = json.loads(frame)
    except (ValueError, RecursionError):
        return  # the strict reader names what is wrong with it
    if isinstance(document, dict) and set(document) == {"failed"}:
        code = document["failed"]
        known = isinstance(code, str) and code in RUN_CODES
        raise RunRefused(code if known else "bundle_failed", expected="a result of the eval code")
