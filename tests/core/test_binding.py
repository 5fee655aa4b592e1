"""The binding against an independent construction written from docs/spec/binding.md."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestation.appraise import derive_gpu_nonce
from enclave.core.binding import (
    BindingInputs,
    compute_binding,
    encode_binding,
    gpu_nonce,
    party_binding,
    refuse_other_binding,
)
from tests.core.builders import World, expect_refusal, make_party

PLAN, SESSION = "c1" * 32, "5e" * 16
OWNER, EVALUATOR = ("model_owner", b"o" * 32), ("evaluator", b"e" * 32)


def field(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def by_the_page(inputs: BindingInputs) -> bytes:
    message = b"doubleblind/binding/v1\x00"
    message += field(bytes.fromhex(inputs.plan))
    message += field(bytes.fromhex(inputs.session))
    message += field(inputs.tls_spki_sha256)
    message += field(inputs.hpke_key)
    message += field(inputs.signing_key)
    for label in sorted(dict(inputs.nonces)):
        message += field(label.encode()) + field(dict(inputs.nonces)[label])
    return hashlib.sha512(message).digest()


@pytest.fixture(scope="module")
def inputs(world: World) -> BindingInputs:
    owner = world.owner.party
    return BindingInputs(
        PLAN, SESSION, b"t" * 32, owner.recipient_key, owner.signing_key, (OWNER, EVALUATOR)
    )


def test_binding_is_the_page(inputs: BindingInputs) -> None:
    assert compute_binding(inputs) == by_the_page(inputs)
    assert len(compute_binding(inputs)) == 64


def test_nonce_order_is_free(inputs: BindingInputs) -> None:
    assert compute_binding(inputs) == compute_binding(replace(inputs, nonces=(EVALUATOR, OWNER)))


def test_every_input_counts(world: World, inputs: BindingInputs) -> None:
    other = world.evaluator.party
    variants: list[dict[str, Any]] = [
        {"plan": "c2" + "c1" * 31},
        {"session": "5f" + "5e" * 15},
        {"tls_spki_sha256": b"t" * 31 + b"u"},
        {"hpke_key": other.recipient_key},
        {"signing_key": other.signing_key},
        {"nonces": (OWNER,)},
        {"nonces": (EVALUATOR,)},
        {"nonces": (OWNER, ("evaluator", b"x" * 32))},
        {"nonces": (OWNER, ("auditor", b"e" * 32))},
        {"nonces": (("model_owner", b"e" * 32), ("evaluator", b"o" * 32))},
    ]
    bindings = {compute_binding(replace(inputs, **variant)) for variant in variants}
    assert len(bindings | {compute_binding(inputs)}) == len(variants) + 1


@settings(max_examples=30)
@given(
    st.dictionaries(
        st.sampled_from(["model_owner", "evaluator", "reviewer", "auditor", "receipt"]),
        st.binary(min_size=32, max_size=32),
        min_size=1,
    ),
    st.binary(min_size=32, max_size=32),
    st.binary(min_size=16, max_size=16),
)
def test_binding_is_the_page_for_any_nonces(
    nonces: dict[str, bytes], plan: bytes, session: bytes
) -> None:
    made = BindingInputs(
        plan.hex(), session.hex(), b"t" * 32, KEYS[0], KEYS[1], tuple(nonces.items())
    )
    assert compute_binding(made) == by_the_page(made)
    assert encode_binding(made).startswith(b"doubleblind/binding/v1\x00")


KEYS = (lambda p: (p.recipient_key, p.signing_key))(make_party("auditor", "A").party)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"plan": "C1" * 32}, "binding_input"),
        ({"plan": "c1" * 31}, "binding_input"),
        ({"plan": b"c1" * 32}, "binding_input"),
        ({"session": "5e" * 32}, "binding_input"),
        ({"session": "5e" * 15 + "5é"}, "binding_input"),
        ({"tls_spki_sha256": b"t" * 31}, "binding_input"),
        ({"tls_spki_sha256": "t" * 32}, "binding_input"),
        ({"hpke_key": b"k" * 1215}, "binding_input"),
        ({"hpke_key": b"\xff" * 1216}, "binding_input"),
        ({"signing_key": b"k" * 91}, "binding_input"),
        ({"nonces": ()}, "binding_nonce_missing"),
        ({"nonces": (OWNER, OWNER)}, "binding_nonce_duplicate"),
        ({"nonces": (OWNER, ("model_owner", b"x" * 32))}, "binding_nonce_duplicate"),
        ({"nonces": (("host", b"x" * 32),)}, "binding_nonce_label"),
        ({"nonces": (("", b"x" * 32),)}, "binding_nonce_label"),
        ({"nonces": (("evaluator", b"x" * 31),)}, "binding_input"),
        ({"nonces": (("evaluator", b""),)}, "binding_input"),
    ],
)
def test_malformed_inputs(inputs: BindingInputs, change: dict[str, Any], code: str) -> None:
    expect_refusal(code, lambda: replace(inputs, **change))


def test_gpu_nonce(inputs: BindingInputs) -> None:
    binding = compute_binding(inputs)
    page = hashlib.sha256(b"doubleblind/gpu-nonce/v1\x00" + field(binding)).digest()
    assert gpu_nonce(binding) == page == derive_gpu_nonce(binding)
    expect_refusal("binding_input", lambda: gpu_nonce(binding[:32]))


def test_party_binding(world: World) -> None:
    key = world.owner.party.signing_key
    page = b"doubleblind/party-binding/v1\x00" + field(bytes.fromhex(PLAN))
    page += field(bytes.fromhex(SESSION)) + field(b"model_owner") + field(key) + field(b"c" * 32)
    got = party_binding(PLAN, SESSION, "model_owner", key, b"c" * 32)
    assert got == hashlib.sha512(page).digest()
    assert got != party_binding(PLAN, SESSION, "evaluator", key, b"c" * 32)
    assert got != party_binding(PLAN, SESSION, "model_owner", key, b"d" * 32)


@pytest.mark.parametrize(
    "arguments",
    [
        (PLAN, SESSION, "auditor", None, b"c" * 32),
        (PLAN, SESSION, "model_owner", b"key", b"c" * 32),
        (PLAN, SESSION, "model_owner", None, b"c" * 31),
        (PLAN[:-2], SESSION, "model_owner", None, b"c" * 32),
        (PLAN, SESSION[:-2], "model_owner", None, b"c" * 32),
    ],
)
def test_malformed_party_binding(world: World, arguments: tuple[Any, ...]) -> None:
    plan, session, role, key, challenge = arguments
    key = world.owner.party.signing_key if key is None else key
    expect_refusal("binding_input", lambda: party_binding(plan, session, role, key, challenge))


def test_other_binding(inputs: BindingInputs) -> None:
    binding = compute_binding(inputs)
    refuse_other_binding(binding, binding)
    expect_refusal("binding_mismatch", lambda: refuse_other_binding(binding, b"\x00" * 64))
    expect_refusal("binding_mismatch", lambda: refuse_other_binding(binding, binding[:-1]))
    expect_refusal("binding_input", lambda: refuse_other_binding(b"", b""))
