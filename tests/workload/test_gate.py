"""The gate: the order it keeps, what it lets out, what it signs and what it refuses to sign."""

from __future__ import annotations

import base64
import contextlib
import json
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from enclave.core.budget import compute_budget
from enclave.core.canonical import print_canonical
from enclave.core.dsse import verify_envelope
from enclave.core.errors import ReleaseRefused, RunRefused
from enclave.core.hpke import SEAL_OVERHEAD
from enclave.core.receipt import close_receipt, parse_receipt, verify_receipt_envelope
from enclave.core.release import RELEASE_CODES, open_view
from enclave.core.run_facts import RunFacts
from enclave.core.signing_key import parse_signing_key, print_signing_key
from enclave.core.statement import Statement
from enclave.core.vocabulary import PLAN_APPROVAL_TYPE
from enclave.workload.frames import send_frame
from enclave.workload.gate.codes import RESULT_MISSING, RUN_CODES
from tests.core.builders import World, b64, frame_json, make_world
from tests.core.sessions import SESSION, SLOT
from tests.workload.gates import GateUnderTest, code_of, open_gate, released, statement


@pytest.fixture(scope="module")
def world() -> World:
    return make_world()


@pytest.fixture
def gate(world: World) -> Iterator[GateUnderTest]:
    with open_gate(world) as opened:
        yield opened


# Its life.


def test_it_ends_with_the_broker(world: World) -> None:
    assert GateUnderTest(world).close() == 0


def test_it_takes_no_settings(world: World) -> None:
    gate = GateUnderTest(world, {"debug": True})
    gate.thread.join(20)
    assert gate.status == 1


def test_it_ends_on_nonsense(gate: GateUnderTest) -> None:
    gate.control.sendall(struct.pack(">I", 4) + b"oops")
    gate.thread.join(20)
    assert gate.status == 0


def test_descriptors_are_not_taken(gate: GateUnderTest) -> None:
    with contextlib.suppress(RunRefused):  # it may be gone before the frame is out
        send_frame(gate.control, {"op": "open"}, [gate.control.fileno()])
    gate.thread.join(20)
    assert gate.status == 0


# Opening.


def test_each_gate_has_a_key_of_its_own(world: World) -> None:
    keys = set()
    for _ in range(3):
        with open_gate(world) as gate:
            key = gate.open()
            parse_signing_key(key)
            keys.add(key)
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"session": "AB" * 16}, "document:document_field_value"),
        ({"session": "ab" * 15}, "document:document_field_value"),
        ({"plan": b64(b"{}")}, "document:document_field_missing"),
        ({"plan": "?"}, "document:document_field_value"),
        ({"policy": b64(b"{}")}, "document:document_field_missing"),
        ({"also": 1}, "document:document_field_unknown"),
        ({"op": "reopen"}, "document:document_field_value"),
    ],
)
def test_malformed_opening(gate: GateUnderTest, change: dict[str, Any], code: str) -> None:
    assert code_of(lambda: gate.open(**change)) == code
    gate.open()  # nothing came of it


def test_a_policy_that_is_not_the_plans(gate: GateUnderTest, world: World) -> None:
    other = {**world.policy.to_json(), "max_bits": 9999}
    assert code_of(lambda: gate.open(policy=b64(print_canonical(other)))) == (
        "release:policy_other_digest"
    )


def test_a_plan_over_its_budget(gate: GateUnderTest, world: World) -> None:
    plan = world.other_plan(max_runs=1000)
    assert code_of(lambda: gate.open(plan=b64(plan.to_bytes()))) == (
        "release:release_budget_exceeded"
    )


# Order.


def test_order(gate: GateUnderTest, world: World) -> None:
    facts = statement(released(world)[1])
    assert code_of(gate.release) == "release:gate_order"
    assert code_of(lambda: gate.sign(facts)) == "receipt:gate_order"
    gate.open()
    assert code_of(gate.open) == "release:gate_order"
    assert code_of(lambda: gate.sign(facts)) == "receipt:gate_order"
    gate.give(frame_json())
    assert gate.release()["op"] == "released"
    assert code_of(gate.release) == "release:gate_order"
    assert code_of(gate.open) == "release:gate_order"


def test_a_refused_release_is_the_only_one(gate: GateUnderTest, world: World) -> None:
    """One result a session: a second attempt could be tuned to the first refusal."""
    gate.open()
    gate.give({**frame_json(), "failed": 10**6})
    assert code_of(gate.release) == "release:result_too_many_samples"
    assert code_of(gate.release) == "release:gate_order"
    facts = statement(released(world)[1])
    assert code_of(lambda: gate.sign(facts)) == "receipt:gate_order"


@pytest.mark.parametrize(
    "change",
    [{"run": 0}, {"run": 4}, {"run": "1"}, {"slot": "now"}, {"slot": "x" * 30}, {"more": 1}],
)
def test_malformed_release(gate: GateUnderTest, change: dict[str, Any]) -> None:
    gate.open()
    gate.give(frame_json())
    assert code_of(lambda: gate.release(**change)) != "ok"
    assert code_of(gate.release) == "release:gate_order"


# What comes out.


def test_views_are_the_recipients_and_of_one_size(gate: GateUnderTest, world: World) -> None:
    gate.open()
    gate.give(frame_json())
    answer = gate.release()
    assert set(answer) == {"op", "completed", "failed", "bits", "views"}
    assert (answer["completed"], answer["failed"]) == (120, 0)
    assert answer["bits"] == compute_budget(world.plan, world.policy).bits_per_run
    assert [(v["view"], v["role"]) for v in answer["views"]] == [
        ("summary", "model_owner"),
        ("summary", "evaluator"),
    ]
    for view, party in zip(answer["views"], (world.owner, world.evaluator), strict=True):
        sealed = base64.b64decode(view["sealed"])
        assert len(sealed) == world.policy.release_bytes + SEAL_OVERHEAD
        opened = open_view(
            sealed,
            party.recipient_key,
            plan=world.plan,
            policy=world.policy,
            session=SESSION,
            run=1,
            view="summary",
            role=party.role,
        )
        assert opened.slot == SLOT
        accuracy = opened.metrics[0]
        assert (accuracy.id, accuracy.value) == ("truthfulqa_mc1_accuracy", "0.3")


def test_the_spelling_of_the_frame_leaves_no_trace(world: World) -> None:
    """Whitespace, key order and digits below a step: the views say the same, in the same size."""
    first = frame_json()
    second = json.loads(json.dumps(first))
    second["metrics"] = dict(reversed(second["metrics"].items()))
    second["metrics"]["truthfulqa_mc1_accuracy"]["value"] = "0.295000000001"
    opened = []
    for data in (json.dumps(first, indent=7).encode(), json.dumps(second).encode()):
        with open_gate(world) as gate:
            gate.open()
            gate.give(data)
            sealed = base64.b64decode(gate.release()["views"][1]["sealed"])
        terms: dict[str, Any] = {"plan": world.plan, "policy": world.policy, "session": SESSION}
        terms |= {"run": 1, "view": "summary", "role": "evaluator"}
        view = open_view(sealed, world.evaluator.recipient_key, **terms)
        opened.append(view.to_bytes(world.policy.release_bytes))
    assert opened[0] == opened[1]


def test_a_frame_in_small_pieces(gate: GateUnderTest) -> None:
    data = json.dumps(frame_json()).encode()
    gate.open()
    send_frame(gate.control, {"op": "release", "run": 1, "slot": SLOT})
    for piece in (
        struct.pack(">I", len(data))[:3],
        struct.pack(">I", len(data))[3:],
        data[:1],
        data[1:],
    ):
        time.sleep(0.02)
        gate.sandbox.sendall(piece)
    assert gate.hear()["op"] == "released"


@pytest.mark.parametrize("sent", [b"", b"\x00", b"\x00\x00\x00\x05", b"\x00\x00\x00\x05{}"])
def test_a_sandbox_that_ends_early(gate: GateUnderTest, sent: bytes) -> None:
    gate.open()
    gate.sandbox.sendall(sent)
    gate.sandbox.close()
    assert code_of(gate.release) == f"run:{RESULT_MISSING}"


def test_what_follows_the_frame_is_not_read(gate: GateUnderTest) -> None:
    gate.open()
    data = json.dumps(frame_json()).encode()
    gate.sandbox.sendall(struct.pack(">I", len(data)) + data + b"and the prompts were: ...")
    assert gate.release()["op"] == "released"


@pytest.mark.parametrize("code", sorted(RUN_CODES))
def test_a_bundle_may_fail_with_a_known_code(gate: GateUnderTest, code: str) -> None:
    gate.open()
    gate.give({"failed": code})
    assert code_of(gate.release) == f"run:{code}"


@pytest.mark.parametrize("code", ["my_own_code", "", 7, None, ["bundle_failed"], "BUNDLE_FAILED"])
def test_other_codes_of_a_bundle_are_not_repeated(gate: GateUnderTest, code: Any) -> None:
    gate.open()
    gate.give({"failed": code})
    assert code_of(gate.release) == "run:bundle_failed"


@pytest.mark.parametrize(
    "frame",
    [
        {},
        {"metrics": {"s3cr3t": 1}},
        {**frame_json(), "s3cr3t": "s3cr3t"},
        b"s3cr3t",
        b'["s3cr3t"]',
    ],
)
def test_a_refusal_says_nothing_of_the_frame(gate: GateUnderTest, frame: Any) -> None:
    gate.open()
    gate.give(frame)
    with pytest.raises(ReleaseRefused) as caught:
        gate.release()
    assert caught.value.expected == RELEASE_CODES[caught.value.code]
    assert (caught.value.got, caught.value.hint) == ("", "")


def test_reasons_fit_their_bits() -> None:
    """The budget counts 2**6 reasons for a refusal."""
    assert len(RELEASE_CODES) + len(RUN_CODES) + 2 <= 64


# What it signs.


def test_it_signs_what_it_released(world: World) -> None:
    gate, facts = released(world)
    envelope = gate.sign(statement(facts))
    verify_envelope(envelope, facts.keys.signing_key)
    receipt = parse_receipt(close_receipt(envelope, facts.evidence[0].evidence))
    assert verify_receipt_envelope(receipt).facts == facts
    assert code_of(lambda: gate.sign(statement(facts))) == "receipt:gate_order"
    gate.close()


def other_key(facts: RunFacts) -> RunFacts:
    key = print_signing_key(ec.generate_private_key(ec.SECP256R1()).public_key())
    return replace(facts, keys=replace(facts.keys, signing_key=key))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda f: replace(f, session="cd" * 16), "receipt:receipt_other_release"),
        (lambda f: replace(f, run=2, runs_spent=2), "receipt:receipt_other_release"),
        (lambda f: replace(f, completed=119), "receipt:receipt_other_release"),
        (lambda f: replace(f, failed=1), "receipt:receipt_other_release"),
        (lambda f: replace(f, bits=f.bits + 1), "receipt:receipt_other_release"),
        (
            lambda f: replace(
                f, releases=tuple(replace(each, sha256="ee" * 32) for each in f.releases)
            ),
            "receipt:receipt_other_release",
        ),
        (lambda f: replace(f, releases=f.releases[::-1]), "receipt:receipt_other_release"),
        (lambda f: replace(f, controls=("oracle",)), "receipt:receipt_controls"),
        (lambda f: replace(f, finished_slot="2026-10-01T12:00:01Z"), "release:release_slot"),
        (other_key, "receipt:receipt_foreign_key"),
    ],
)
def test_it_does_not_sign_anything_else(world: World, change: Any, code: str) -> None:
    gate, facts = released(world)
    assert code_of(lambda: gate.sign(statement(change(facts)))) == code
    assert gate.sign(statement(facts))  # a refusal does not use the signature up
    gate.close()


def test_it_does_not_sign_for_another_plan(world: World) -> None:
    """A statement about another plan of the same parties, sound in itself."""
    gate, facts = released(world)
    other = replace(world, document=world.edited(title="Another"))
    foreign = released(other)[1]
    made = replace(foreign, keys=facts.keys, releases=facts.releases)
    assert code_of(lambda: gate.sign(statement(made))) == "receipt:receipt_other_release"
    gate.close()


def test_it_signs_receipts_only(world: World) -> None:
    """Not an approval, not a text, not a respelled statement."""
    gate, facts = released(world)
    approval = Statement(
        (("plan", world.plan.digest),), PLAN_APPROVAL_TYPE, {"decision": "approve"}
    )
    good = statement(facts)
    spaced = json.dumps(json.loads(good)).encode()
    wrong = good.replace(facts.plan.digest.encode(), b"e" * 64, 1)
    for data in (approval.to_bytes(), b"text", b"", spaced, wrong):
        assert code_of(lambda d=data: gate.sign(d)) not in ("ok", "release:gate_failed"), data[:40]
    assert gate.sign(good)
    gate.close()
