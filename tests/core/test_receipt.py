from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from securesystemslib.dsse import Envelope as PeerEnvelope
from securesystemslib.signer import SSlibKey

from attestation.errors import AttestationError
from attestation.verify import parse_evidence_bundle
from enclave.core.binding import compute_binding
from enclave.core.canonical import digest_bytes, print_canonical
from enclave.core.dsse import Envelope, sign_envelope
from enclave.core.errors import Refusal
from enclave.core.hpke import SEAL_OVERHEAD
from enclave.core.receipt import (
    Receipt,
    build_receipt_statement,
    close_receipt,
    closing_inputs,
    closing_nonce,
    parse_receipt,
    sign_receipt,
    verify_receipt_envelope,
)
from enclave.core.receipt_rules import refuse_other_result_policy
from enclave.core.result_policy import parse_result_policy
from enclave.core.run_facts import PartyEvidence, RunFacts, SealedRelease
from enclave.core.statement import Statement
from enclave.core.vocabulary import ENCLAVE_RUN_TYPE
from tests.core.builders import World, approve, b64, demo_policy_json, expect_refusal
from tests.core.sessions import SLOT, Session, appraise, attester, make_facts, open_session
from tests.core.test_plan import edit


@pytest.fixture(scope="module")
def session(world: World) -> Session:
    return open_session(world)


@pytest.fixture(scope="module")
def facts(world: World, session: Session) -> RunFacts:
    return make_facts(world, session)


@pytest.fixture(scope="module")
def receipt(facts: RunFacts, session: Session) -> bytes:
    statement = build_receipt_statement(facts)
    envelope = sign_receipt(statement, session.signing_key)
    closing = attester().collect_evidence(compute_binding(closing_inputs(facts, statement)))
    return close_receipt(envelope, closing.to_bytes())


def test_parse_print_compare(receipt: bytes, facts: RunFacts) -> None:
    parsed = parse_receipt(receipt)
    assert parsed.to_bytes() == receipt
    assert parsed.facts == facts


def test_verified(world: World, receipt: bytes, facts: RunFacts) -> None:
    verified = verify_receipt_envelope(parse_receipt(receipt))
    assert verified.facts == facts
    assert verified.approvals.envelopes == approve(world)
    refuse_other_result_policy(verified.facts, world.policy)


def test_evidence_binds_the_session(receipt: bytes) -> None:
    """What an auditor does: every evidence against what the receipt says it binds."""
    parsed = parse_receipt(receipt)
    for entry in parsed.facts.evidence:
        binding = compute_binding(parsed.facts.binding_inputs(entry.label, entry.nonce))
        appraise(parse_evidence_bundle(entry.evidence), binding)
    closing = parse_evidence_bundle(parsed.closing_evidence)
    appraise(closing, compute_binding(parsed.closing_inputs))
    with pytest.raises(AttestationError):
        appraise(closing, compute_binding(parsed.facts.binding_inputs("auditor", b"x" * 32)))


def test_closing_nonce_is_the_digest_of_the_statement(facts: RunFacts) -> None:
    statement = build_receipt_statement(facts)
    assert closing_nonce(statement) == hashlib.sha256(statement).digest()
    assert closing_inputs(facts, statement).nonces == (("receipt", closing_nonce(statement)),)


def test_securesystemslib_verifies_the_envelope(receipt: bytes, session: Session) -> None:
    envelope = json.loads(receipt)["envelope"]
    keyid = envelope["signatures"][0]["keyid"]
    key = SSlibKey.from_crypto(session.signing_key.public_key(), keyid=keyid)
    assert list(PeerEnvelope.from_dict(envelope).verify([key], 1)) == [keyid]


def test_it_is_an_in_toto_statement(receipt: bytes, world: World, facts: RunFacts) -> None:
    statement = json.loads(base64.b64decode(json.loads(receipt)["envelope"]["payload"]))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://w3id.org/double-blind/enclave-run/v1"
    run = hashlib.sha256(print_canonical(facts.to_json())).hexdigest()
    assert [(s["name"], s["digest"]["sha256"]) for s in statement["subject"]] == [
        ("plan", world.plan.digest),
        ("run", run),
    ]


def test_no_score_is_in_it(world: World, receipt: bytes, facts: RunFacts) -> None:
    payload = base64.b64decode(json.loads(receipt)["envelope"]["payload"])
    for metric in world.policy.metrics:
        assert metric.id.encode() not in payload
    assert set(facts.to_json()) == {
        "plan", "session", "run", "keys", "approvals", "evidence", "party_evidence", "policies",
        "engine", "isolation", "controls", "samples", "wipe", "releases", "bits", "runs_spent",
        "started_slot", "finished_slot",
    }  # fmt: skip


def test_releases_are_named_by_their_sealed_bytes(world: World, facts: RunFacts) -> None:
    for release in facts.releases:
        assert release.size == world.policy.release_bytes + SEAL_OVERHEAD
        assert len(release.sha256) == 64


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from leaves(entry, (*path, key))
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from leaves(entry, (*path, index))
    else:
        yield path


def other_value(value: Any) -> Any:
    """A well-formed value of the same kind where there is one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    last = value[-1]
    return value[:-1] + ("1" if last != "1" else "2")


def test_an_altered_field_never_verifies(receipt: bytes, facts: RunFacts) -> None:
    """Altered in the payload, signature kept: every leaf of the statement in turn."""
    document = json.loads(receipt)
    statement = json.loads(base64.b64decode(document["envelope"]["payload"]))
    paths = list(leaves(statement))
    assert len(paths) >= 45
    for path in paths:
        value = statement
        for key in path:
            value = value[key]
        payload = print_canonical(edit(statement, path, other_value(value)))
        forged = edit(document, ("envelope", "payload"), b64(payload))
        with pytest.raises(Refusal) as caught:
            verify_receipt_envelope(parse_receipt(print_canonical(forged)))
        assert caught.value.stage in ("receipt", "document", "plan"), path


def test_altered_facts_with_matching_digest_fail_the_signature(
    receipt: bytes, facts: RunFacts
) -> None:
    parsed = parse_receipt(receipt)
    for changed in (
        replace(facts, run=2),
        replace(facts, bits=46),
        replace(facts, engine={"torch": "2.14.0"}),
        replace(facts, session="00" * 16),
        replace(facts, completed=119),
        replace(facts, finished_slot="2026-10-01T13:00:00Z"),
    ):
        statement = Statement(
            (
                ("plan", facts.plan.digest),
                ("run", digest_bytes(print_canonical(changed.to_json()))),
            ),
            ENCLAVE_RUN_TYPE,
            changed.to_json(),
        ).to_bytes()
        envelope = Envelope(statement, parsed.envelope.keyid, parsed.envelope.signature)
        forged = parse_receipt(close_receipt(envelope, parsed.closing_evidence))
        expect_refusal("receipt_signature", lambda f=forged: verify_receipt_envelope(f))


def test_another_signer(facts: RunFacts, receipt: bytes) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    statement = build_receipt_statement(facts)
    expect_refusal("receipt_foreign_key", lambda: sign_receipt(statement, key))
    forged = replace(parse_receipt(receipt), envelope=sign_envelope(statement, key))
    expect_refusal("receipt_signature", lambda: verify_receipt_envelope(forged))


def test_facts_and_envelope_are_one(facts: RunFacts, receipt: bytes) -> None:
    parsed = parse_receipt(receipt)
    mixed = Receipt(parsed.envelope, replace(facts, run=2), parsed.closing_evidence)
    expect_refusal("receipt_subject", lambda: verify_receipt_envelope(mixed))


def test_wrong_subject(facts: RunFacts, session: Session) -> None:
    for subject in (
        (("plan", "00" * 32), ("run", digest_bytes(print_canonical(facts.to_json())))),
        (("plan", facts.plan.digest), ("run", "00" * 32)),
    ):
        payload = Statement(subject, ENCLAVE_RUN_TYPE, facts.to_json()).to_bytes()
        envelope = sign_envelope(payload, session.signing_key)
        expect_refusal("receipt_subject", lambda e=envelope: parse_receipt(close_receipt(e, b"c")))


RULES: list[tuple[dict[str, Any], str]] = [
    ({"run": 4}, "receipt_run_past_max"),
    ({"runs_spent": 4}, "receipt_run_past_max"),
    ({"run": 3}, "receipt_run_past_max"),
    ({"completed": 200, "failed": 1}, "receipt_samples"),
    ({"finished_slot": "2026-10-01T11:00:00Z"}, "receipt_slots"),
    (
        {"started_slot": "2027-01-01T00:00:00Z", "finished_slot": "2027-01-01T00:00:00Z"},
        "plan_expired",
    ),
]


@pytest.mark.parametrize(("change", "code"), RULES)
def test_rules_between_fields(
    facts: RunFacts, session: Session, change: dict[str, Any], code: str
) -> None:
    """Refused when building, and, signed all the same, refused when reading."""
    changed = replace(facts, **change)
    expect_refusal(code, lambda: build_receipt_statement(changed))
    expect_refusal(code, lambda: verify_receipt_envelope(signed(changed, session)))


def signed(facts: RunFacts, session: Session) -> Receipt:
    digest = digest_bytes(print_canonical(facts.to_json()))
    payload = Statement(
        (("plan", facts.plan.digest), ("run", digest)), ENCLAVE_RUN_TYPE, facts.to_json()
    ).to_bytes()
    return parse_receipt(close_receipt(sign_envelope(payload, session.signing_key), b"closing"))


def test_rules_about_parts(world: World, facts: RunFacts, session: Session) -> None:
    owner, evaluator = facts.evidence
    shown = PartyEvidence("model_owner", b"c" * 32, b"evidence")
    first, second = facts.releases
    cases: list[tuple[dict[str, Any], str]] = [
        ({"evidence": (owner,)}, "receipt_evidence_missing"),
        ({"evidence": (owner, owner)}, "receipt_evidence_missing"),
        ({"evidence": (owner, evaluator, evaluator)}, "receipt_evidence_missing"),
        ({"evidence": (owner, replace(evaluator, nonce=owner.nonce))}, "receipt_nonce_reused"),
        ({"party_evidence": (shown,)}, "receipt_party_evidence"),
        ({"isolation": replace(facts.isolation, probes_refused=19)}, "receipt_probe_passed"),
        ({"releases": (first,)}, "receipt_releases"),
        ({"releases": (first, replace(second, size=1))}, "receipt_releases"),
        (
            {"releases": (first, second, SealedRelease("other", "evaluator", "00" * 32, 5232))},
            "receipt_releases",
        ),
        ({"approvals": facts.approvals[::-1]}, "receipt_approval_order"),
        ({"approvals": (facts.approvals[0],) * 2}, "approval_duplicate"),
        ({"approvals": approve(world, max_runs=1), "runs_spent": 2}, "receipt_run_past_max"),
    ]
    for change, code in cases:
        changed = replace(facts, **change)
        expect_refusal(code, lambda c=changed: build_receipt_statement(c))
        expect_refusal(code, lambda c=changed: verify_receipt_envelope(signed(c, session)))


def test_tier_below_the_plan(world: World, facts: RunFacts) -> None:
    weak = replace(facts, isolation=replace(facts.isolation, tier="T1"))
    build_receipt_statement(weak)
    strict = replace(weak, plan=world.other_plan(isolation={"min_tier": "T2"}))
    expect_refusal("receipt_tier", lambda: build_receipt_statement(strict))


def test_approvals_of_another_plan(world: World, facts: RunFacts) -> None:
    other = replace(facts, plan=world.other_plan(title="Other"))
    expect_refusal("approval_other_plan", lambda: build_receipt_statement(other))


def test_party_evidence_of_the_plan(world: World, facts: RunFacts) -> None:
    demand = {"kind": "simulated", "policy": "0a" * 32, "reference_values": "0b" * 32}
    plan = world.other_plan(party_evidence={"model_owner": demand, "evaluator": None})
    bare = replace(facts, plan=plan)
    expect_refusal("receipt_party_evidence", lambda: build_receipt_statement(bare))
    entry = PartyEvidence("model_owner", b"c" * 32, b"evidence")
    assert len(replace(bare, party_evidence=(entry,)).party_binding(entry)) == 64


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (("scores",), {"accuracy": "1"}, "document_field_unknown"),
        (("samples", "accuracy"), "1", "document_field_unknown"),
        (("releases", 0, "value"), "1", "document_field_unknown"),
        (("controls", "oracle"), "0.5", "document_field_value"),
        (("controls",), {}, "document_field_value"),
        (("engine",), {}, "document_field_value"),
        (("engine", "torch"), "x" * 201, "document_field_value"),
        (("wipe", "verified"), False, "receipt_wipe_unverified"),
        (("wipe", "files"), 0, "document_field_value"),
        (("isolation", "tier"), "T0", "document_field_value"),
        (("isolation", "probes_tried"), 0, "document_field_value"),
        (("policies", "result_policy"), "00" * 32, "receipt_other_policy"),
        (("evidence", 0, "label"), "receipt", "document_field_value"),
        (("evidence", 0, "nonce"), "00" * 31, "document_field_value"),
        (("approvals",), [], "document_field_value"),
        (("plan",), b64(b"{}"), "document_field_missing"),
        (("started_slot",), "noon", "document_time"),
        (("session",), ..., "document_field_missing"),
    ],
)
def test_closed(
    facts: RunFacts, session: Session, path: tuple[str | int, ...], value: Any, code: str
) -> None:
    predicate = edit(facts.to_json(), path, value)
    payload = Statement(
        (("plan", facts.plan.digest), ("run", digest_bytes(print_canonical(predicate)))),
        ENCLAVE_RUN_TYPE,
        predicate,
    ).to_bytes()
    data = close_receipt(sign_envelope(payload, session.signing_key), b"closing")
    expect_refusal(code, lambda: parse_receipt(data))


def test_repeated_release(facts: RunFacts, session: Session) -> None:
    twice = replace(facts, releases=(facts.releases[0],) * 2)
    expect_refusal("document_field_value", lambda: signed(twice, session))


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (("closing",), ..., "document_field_missing"),
        (("closing", "evidence"), "!", "document_field_value"),
        (("closing", "extra"), 1, "document_field_unknown"),
        (("extra",), 1, "document_field_unknown"),
        (("envelope", "payloadType"), "x", "document_field_value"),
    ],
)
def test_the_file_is_closed(receipt: bytes, path: tuple[str, ...], value: Any, code: str) -> None:
    data = print_canonical(edit(json.loads(receipt), path, value))
    expect_refusal(code, lambda: parse_receipt(data))


def test_against_the_result_policy(world: World, facts: RunFacts) -> None:
    def variant(**change: Any) -> RunFacts:
        return replace(facts, **change)

    refuse = refuse_other_result_policy
    expect_refusal("receipt_bits", lambda: refuse(variant(bits=44), world.policy))
    expect_refusal("receipt_controls", lambda: refuse(variant(controls=("oracle",)), world.policy))
    small = tuple(replace(release, size=100) for release in facts.releases)
    expect_refusal("receipt_releases", lambda: refuse(variant(releases=small), world.policy))
    off = "2026-10-01T12:00:01Z"
    expect_refusal("release_slot", lambda: refuse(variant(finished_slot=off), world.policy))
    expect_refusal("release_slot", lambda: refuse(variant(started_slot=off), world.policy))
    other = parse_result_policy(print_canonical({**demo_policy_json(), "max_bits": 255}))
    expect_refusal("policy_other_digest", lambda: refuse(facts, other))
    assert facts.started_slot == SLOT
