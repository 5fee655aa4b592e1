"""Grants over real simulated evidence, appraised for real."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from enclave.core.binding import compute_binding
from enclave.core.canonical import print_canonical
from enclave.core.errors import Refusal
from enclave.core.grant import OpenedGrant, grant_key, open_grant, parse_grant
from enclave.core.hpke import generate_private, open_with, seal_to
from tests.core.builders import World, b64, expect_refusal
from tests.core.sessions import SESSION, Session, appraise, attester, open_session

KEY, SALT, COMMITMENT = b"k" * 32, b"s" * 32, "11" * 32


@pytest.fixture(scope="module")
def session(world: World) -> Session:
    return open_session(world)


def make(session: Session, /, **changes: Any) -> bytes:
    arguments: dict[str, Any] = {
        "inputs": session.inputs,
        "evidence_digest": session.bundle.digest,
        "role": "model_owner",
        "artifact": "model",
        "commitment": COMMITMENT,
        "run": 1,
        "key": KEY,
        "salt": SALT,
    }
    result = changes.pop("result", session.result)
    return grant_key(result, **{**arguments, **changes})


def open_(session: Session, grant: bytes, /, **changes: Any) -> OpenedGrant:
    arguments: dict[str, Any] = {
        "private_key": session.hpke_key,
        "plan": session.inputs.plan,
        "session": SESSION,
        "evidence_digest": session.bundle.digest,
        "role": "model_owner",
        "artifact": "model",
        "commitment": COMMITMENT,
        "max_runs": 3,
    }
    return open_grant(grant, **{**arguments, **changes})


def test_grant_opens_in_its_session(session: Session) -> None:
    opened = open_(session, make(session))
    assert (opened.key, opened.salt, opened.run) == (KEY, SALT, 1)


def test_opened_grants_do_not_print(session: Session) -> None:
    assert "k" * 8 not in repr(open_(session, make(session)))


def test_parse_print_compare(session: Session) -> None:
    grant = make(session, run=3)
    parsed = parse_grant(grant)
    assert parsed.to_bytes() == grant
    assert KEY not in grant


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_byte_never_opens(session: Session, data: st.DataObject) -> None:
    grant = bytearray(make(session))
    offset = data.draw(st.integers(0, len(grant) - 1))
    grant[offset] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Refusal):
        open_(session, bytes(grant))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"plan": "00" * 32}, "grant_other_plan"),
        ({"session": "00" * 16}, "grant_other_session"),
        ({"evidence_digest": "00" * 32}, "grant_other_evidence"),
        ({"role": "evaluator"}, "grant_other_role"),
        ({"artifact": "suite"}, "grant_other_artifact"),
        ({"commitment": "00" * 32}, "grant_other_commitment"),
        ({"max_runs": 0}, "grant_run_past_max"),
        ({"private_key": generate_private()}, "grant_sealed_invalid"),
    ],
)
def test_grant_for_something_else(session: Session, change: dict[str, Any], code: str) -> None:
    grant = make(session)
    expect_refusal(code, lambda: open_(session, grant, **change))


@pytest.mark.parametrize(
    ("name", "value", "expectation"),
    [
        ("plan", "00" * 32, {"plan": "00" * 32}),
        ("session", "00" * 16, {"session": "00" * 16}),
        ("evidence", "00" * 32, {"evidence_digest": "00" * 32}),
        ("commitment", "00" * 32, {"commitment": "00" * 32}),
        ("run", 2, {}),
    ],
)
def test_an_edited_grant_does_not_open(
    session: Session, name: str, value: Any, expectation: dict[str, Any]
) -> None:
    edited = print_canonical({**json.loads(make(session)), name: value})
    expect_refusal("grant_sealed_invalid", lambda: open_(session, edited, **expectation))


def test_edited_owner(session: Session) -> None:
    edited = {**json.loads(make(session)), "role": "evaluator", "artifact": "suite"}
    expect_refusal(
        "grant_sealed_invalid",
        lambda: open_(session, print_canonical(edited), role="evaluator", artifact="suite"),
    )
    swapped = print_canonical({**json.loads(make(session)), "role": "evaluator"})
    expect_refusal("grant_other_role", lambda: open_(session, swapped, role="evaluator"))


def test_sealed_part_of_another_length(session: Session) -> None:
    parsed = parse_grant(make(session))
    short = seal_to(session.inputs.hpke_key, parsed.info(), b"k" * 63)
    document = {**json.loads(make(session)), "sealed": b64(short)}
    expect_refusal("document_field_value", lambda: open_(session, print_canonical(document)))


def test_everything_is_bound_by_the_seal(session: Session) -> None:
    parsed = parse_grant(make(session))
    assert open_with(session.hpke_key, parsed.info(), parsed.sealed) == KEY + SALT
    for change in (
        {"plan": "00" * 32},
        {"session": "00" * 16},
        {"evidence": "00" * 32},
        {"role": "evaluator"},
        {"artifact": "suite"},
        {"commitment": "00" * 32},
        {"run": 2},
    ):
        info = replace(parsed, **change).info()
        assert info != parsed.info()
        expect_refusal("hpke_open", lambda i=info: open_with(session.hpke_key, i, parsed.sealed))


def test_only_an_attestation_result_grants(session: Session) -> None:
    look_alike = SimpleNamespace(
        binding=session.result.binding, evidence_digest=session.result.evidence_digest
    )
    for result in (None, True, {}, look_alike):
        expect_refusal("grant_not_appraised", lambda r=result: make(session, result=r))


def test_relayed_evidence(world: World, session: Session) -> None:
    """Evidence that is genuine, but bound to another key, plan, session or nonce."""
    other = open_session(world)
    for inputs in (
        other.inputs,
        replace(session.inputs, tls_spki_sha256=b"u" * 32),
        replace(session.inputs, plan="00" * 32),
        replace(session.inputs, session="00" * 16),
        replace(session.inputs, hpke_key=other.inputs.hpke_key),
        replace(session.inputs, signing_key=other.inputs.signing_key),
        replace(session.inputs, nonces=(("model_owner", b"x" * 32),)),
    ):
        expect_refusal("binding_mismatch", lambda i=inputs: make(session, inputs=i))


def test_evidence_without_the_own_nonce(session: Session) -> None:
    inputs = replace(session.inputs, nonces=(("evaluator", b"e" * 32),))
    bundle = attester().collect_evidence(compute_binding(inputs))
    result = appraise(bundle, compute_binding(inputs))
    expect_refusal(
        "grant_nonce_missing",
        lambda: make(session, result=result, inputs=inputs, evidence_digest=bundle.digest),
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"evidence_digest": "00" * 32}, "grant_other_evidence"),
        ({"evidence_digest": "00"}, "grant_input"),
        ({"commitment": "11"}, "grant_input"),
        ({"artifact": "suite"}, "grant_other_role"),
        ({"role": "auditor"}, "grant_other_role"),
        ({"artifact": "keys"}, "grant_other_artifact"),
        ({"run": 0}, "grant_run_past_max"),
        ({"run": 1001}, "grant_run_past_max"),
        ({"key": b"k"}, "grant_input"),
        ({"salt": b""}, "grant_input"),
    ],
)
def test_grants_that_are_not_made(session: Session, change: dict[str, Any], code: str) -> None:
    expect_refusal(code, lambda: make(session, **change))


def test_run_past_max(session: Session) -> None:
    grant = make(session, run=4)
    refusal = expect_refusal("grant_run_past_max", lambda: open_(session, grant))
    assert (refusal.expected, refusal.got) == ("at most 3", "4")


@pytest.mark.parametrize("name", ["type", "plan", "session", "run", "sealed", "role", "artifact"])
def test_closed(session: Session, name: str) -> None:
    document = json.loads(make(session))
    unknown = print_canonical({**document, "zz": 1})
    expect_refusal("document_field_unknown", lambda: parse_grant(unknown))
    del document[name]
    expect_refusal("document_field_missing", lambda: parse_grant(print_canonical(document)))
