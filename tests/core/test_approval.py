from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from securesystemslib.dsse import Envelope as PeerEnvelope
from securesystemslib.signer import SSlibKey

from enclave.core.approval import Approvals, sign_approval, verify_approval, verify_approvals
from enclave.core.canonical import digest_bytes, print_canonical
from enclave.core.dsse import Envelope, parse_envelope, sign_envelope
from enclave.core.vocabulary import PLAN_APPROVAL_TYPE
from tests.core.builders import NOW, PartyKeys, World, approve, expect_refusal, make_party

NONCE = b"n" * 32


@pytest.fixture(scope="module")
def envelopes(world: World) -> tuple[bytes, bytes]:
    return approve(world)


def statement(world: World, **changes: Any) -> dict[str, Any]:
    predicate = {
        "role": "model_owner",
        "decision": "approve",
        "nonce": NONCE.hex(),
        "max_runs": 2,
        "not_after": "2026-12-01T00:00:00Z",
    }
    top = {key: changes.pop(key) for key in ("_type", "predicateType", "subject") if key in changes}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "plan", "digest": {"sha256": world.plan.digest}}],
        "predicateType": PLAN_APPROVAL_TYPE,
        "predicate": {**predicate, **changes},
        **top,
    }


def signed(document: dict[str, Any], keys: PartyKeys) -> bytes:
    return sign_envelope(print_canonical(document), keys.signing_key).to_bytes()


def test_quorum(world: World, envelopes: tuple[bytes, bytes]) -> None:
    for order in (envelopes, envelopes[::-1]):
        approvals = verify_approvals(order, world.plan, NOW)
        assert isinstance(approvals, Approvals)
        assert approvals.envelopes == envelopes
    assert approvals.model_owner.role == "model_owner"
    assert approvals.evaluator.plan == world.plan.digest
    assert approvals.model_owner.digest == digest_bytes(envelopes[0])
    assert approvals.model_owner.nonce == NONCE.hex()
    assert approvals.max_runs == 2
    assert approvals.not_after == world.plan.not_after


def test_the_narrower_approval_rules(world: World) -> None:
    plan = world.plan
    early = NOW + dt.timedelta(days=1)
    owner = sign_approval(plan, "model_owner", world.owner.signing_key, NONCE, 3, early)
    evaluator = sign_approval(
        plan, "evaluator", world.evaluator.signing_key, NONCE, 1, plan.not_after
    )
    approvals = verify_approvals([owner, evaluator], plan, NOW)
    assert (approvals.max_runs, approvals.not_after) == (1, early)
    approvals.refuse_expired(early)
    expect_refusal(
        "approval_expired", lambda: approvals.refuse_expired(early + dt.timedelta(seconds=1))
    )


def test_securesystemslib_verifies_our_approvals(
    world: World, envelopes: tuple[bytes, bytes]
) -> None:
    for envelope, keys in zip(envelopes, (world.owner, world.evaluator), strict=True):
        peer = PeerEnvelope.from_dict(json.loads(envelope))
        key = SSlibKey.from_crypto(keys.signing_key.public_key(), keyid=keys.party.key_id)
        assert list(peer.verify([key], 1)) == [keys.party.key_id]
        payload = json.loads(peer.payload)
        assert payload["_type"] == "https://in-toto.io/Statement/v1"
        assert payload["subject"][0]["digest"]["sha256"] == world.plan.digest


def test_missing(world: World, envelopes: tuple[bytes, bytes]) -> None:
    for given in ([], envelopes[:1], envelopes[1:]):
        expect_refusal(
            "approval_missing", lambda given=given: verify_approvals(given, world.plan, NOW)
        )


def test_duplicate(world: World, envelopes: tuple[bytes, bytes]) -> None:
    again = sign_approval(
        world.plan, "model_owner", world.owner.signing_key, b"m" * 32, 1, world.plan.not_after
    )
    for extra in (envelopes[0], again):
        expect_refusal(
            "approval_duplicate",
            lambda extra=extra: verify_approvals([*envelopes, extra], world.plan, NOW),
        )


def test_foreign_key(world: World) -> None:
    stranger = make_party("model_owner", "Stranger")
    envelope = signed(statement(world), stranger)
    expect_refusal("approval_foreign_key", lambda: verify_approval(envelope, world.plan, NOW))
    expect_refusal(
        "approval_foreign_key",
        lambda: sign_approval(
            world.plan, "model_owner", stranger.signing_key, NONCE, 1, world.plan.not_after
        ),
    )


def test_claimed_key_id_needs_its_signature(world: World) -> None:
    stranger = make_party("model_owner", "Stranger")
    theirs = parse_envelope(signed(statement(world), stranger), max_payload=4096)
    forged = Envelope(theirs.payload, world.owner.party.key_id, theirs.signature)
    expect_refusal(
        "approval_signature", lambda: verify_approval(forged.to_bytes(), world.plan, NOW)
    )


def test_a_byte_of_the_plan_voids_it(world: World, envelopes: tuple[bytes, bytes]) -> None:
    for change in ({"title": "Other"}, {"max_runs": 2}, {"plan_id": "1f" * 16}):
        plan = world.other_plan(**change)
        expect_refusal(
            "approval_other_plan", lambda plan=plan: verify_approvals(envelopes, plan, NOW)
        )


def test_altered_payload_or_signature(world: World, envelopes: tuple[bytes, bytes]) -> None:
    good = parse_envelope(envelopes[0], max_payload=4096)
    altered = good.payload.replace(b'"max_runs":2', b'"max_runs":3')
    assert altered != good.payload
    flipped = bytearray(good.signature)
    flipped[-1] ^= 1
    for envelope in (
        Envelope(altered, good.keyid, good.signature),
        Envelope(good.payload, good.keyid, bytes(flipped)),
    ):
        expect_refusal(
            "approval_signature",
            lambda e=envelope: verify_approval(e.to_bytes(), world.plan, NOW),
        )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"role": "evaluator"}, "approval_role_mismatch"),
        ({"role": "auditor"}, "approval_role_mismatch"),
        ({"role": "host"}, "document_field_value"),
        ({"decision": "reject"}, "document_field_value"),
        ({"decision": True}, "document_field_type"),
        ({"nonce": "00" * 31}, "document_field_value"),
        ({"max_runs": 0}, "document_field_value"),
        ({"max_runs": 4}, "approval_exceeds_plan"),
        ({"not_after": "2027-01-01T00:00:00Z"}, "approval_exceeds_plan"),
        ({"not_after": "2026-10-01T11:59:59Z"}, "approval_expired"),
        ({"not_after": "soon"}, "document_time"),
        ({"comment": "x"}, "document_field_unknown"),
        ({"predicateType": "https://w3id.org/double-blind/enclave-run/v1"}, "document_field_value"),
        ({"_type": "https://in-toto.io/Statement/v0.1"}, "document_field_value"),
        ({"subject": []}, "document_field_value"),
        ({"subject": [{"name": "plan", "digest": {"sha256": "00" * 32}}]}, "approval_other_plan"),
        ({"subject": [{"name": "model", "digest": {"sha256": "00" * 32}}]}, "document_field_value"),
        ({"subject": [{"name": "plan", "digest": {"sha1": "00" * 20}}]}, "document_field_missing"),
        (
            {"subject": [{"name": "plan", "digest": {"sha256": "00" * 32, "sha1": "0"}}]},
            "document_field_unknown",
        ),
    ],
)
def test_signed_and_still_refused(world: World, change: dict[str, Any], code: str) -> None:
    envelope = signed(statement(world, **change), world.owner)
    expect_refusal(code, lambda: verify_approval(envelope, world.plan, NOW))


def test_reference_statement_is_accepted(world: World) -> None:
    assert verify_approval(signed(statement(world), world.owner), world.plan, NOW).max_runs == 2


def test_an_auditor_cannot_approve(world: World) -> None:
    envelope = signed(statement(world, role="auditor"), world.auditor)
    expect_refusal("approval_role_mismatch", lambda: verify_approval(envelope, world.plan, NOW))


def test_spaced_payload_is_refused(world: World) -> None:
    payload = json.dumps(statement(world)).encode()
    envelope = sign_envelope(payload, world.owner.signing_key).to_bytes()
    expect_refusal("document_not_canonical", lambda: verify_approval(envelope, world.plan, NOW))


def test_expired_plan(world: World, envelopes: tuple[bytes, bytes]) -> None:
    late = world.plan.not_after + dt.timedelta(seconds=1)
    expect_refusal("plan_expired", lambda: verify_approvals(envelopes, world.plan, late))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("auditor", NONCE, 1), "approval_role_mismatch"),
        (("model_owner", NONCE[:-1], 1), "approval_nonce"),
        (("model_owner", NONCE, 0), "approval_exceeds_plan"),
        (("model_owner", NONCE, 4), "approval_exceeds_plan"),
    ],
)
def test_signing_refuses_what_verifying_would(
    world: World, arguments: tuple[str, bytes, int], code: str
) -> None:
    role, nonce, max_runs = arguments
    expect_refusal(
        code,
        lambda: sign_approval(
            world.plan, role, world.owner.signing_key, nonce, max_runs, world.plan.not_after
        ),
    )
    late = world.plan.not_after + dt.timedelta(seconds=1)
    expect_refusal(
        "approval_exceeds_plan",
        lambda: sign_approval(world.plan, "model_owner", world.owner.signing_key, NONCE, 1, late),
    )
