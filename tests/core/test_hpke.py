from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enclave.core.hpke import (
    PRIVATE_KEY_SIZE,
    PUBLIC_KEY_SIZE,
    SEAL_OVERHEAD,
    RecipientPrivateKey,
    generate_private,
    open_with,
    parse_public,
    private_from_bytes,
    private_to_bytes,
    public_bytes,
    seal_to,
)
from tests.core.builders import expect_refusal


@pytest.fixture(scope="module")
def private() -> RecipientPrivateKey:
    return generate_private()


def test_sizes(private: RecipientPrivateKey) -> None:
    assert len(public_bytes(private)) == PUBLIC_KEY_SIZE
    assert len(private_to_bytes(private)) == PRIVATE_KEY_SIZE
    assert len(seal_to(public_bytes(private), b"", b"12")) == 2 + SEAL_OVERHEAD


def test_private_bytes_round_trip(private: RecipientPrivateKey) -> None:
    restored = private_from_bytes(private_to_bytes(private))
    assert public_bytes(restored) == public_bytes(private)
    assert open_with(restored, b"i", seal_to(public_bytes(private), b"i", b"secret")) == b"secret"


def test_private_keys_do_not_print(private: RecipientPrivateKey) -> None:
    assert private_to_bytes(private)[:4].hex() not in repr(private)


@settings(max_examples=25)
@given(st.binary(max_size=80), st.binary(max_size=80))
def test_seals_open_under_the_same_info(plaintext: bytes, info: bytes) -> None:
    key = generate_private()
    sealed = seal_to(public_bytes(key), info, plaintext)
    assert open_with(key, info, sealed) == plaintext
    expect_refusal("hpke_open", lambda: open_with(key, info + b"x", sealed))
    expect_refusal("hpke_open", lambda: open_with(generate_private(), info, sealed))


def test_every_damage_is_the_same_refusal(private: RecipientPrivateKey) -> None:
    sealed = seal_to(public_bytes(private), b"i", b"secret")
    damaged = [b"", sealed[:-1], sealed + b"x", sealed[:100], b"\x00" * len(sealed)]
    for offset in (0, 1087, 1088, 1119, 1120, len(sealed) - 1):
        flipped = bytearray(sealed)
        flipped[offset] ^= 1
        damaged.append(bytes(flipped))
    texts = {
        str(expect_refusal("hpke_open", lambda data=data: open_with(private, b"i", data)))
        for data in damaged
    }
    assert len(texts) == 1


def test_malformed_public_keys(private: RecipientPrivateKey) -> None:
    good = public_bytes(private)
    overflowing = b"\xff" * 1184 + good[1184:]
    low_order = [b"\x00" * 32, b"\x01" + b"\x00" * 31, b"\xed" + b"\xff" * 30 + b"\x7f"]
    for data in (b"", good[:-1], good + b"x", overflowing, *(good[:1184] + p for p in low_order)):
        expect_refusal("hpke_public_key", lambda data=data: parse_public(data))
        expect_refusal("hpke_public_key", lambda data=data: seal_to(data, b"", b""))


@pytest.mark.parametrize("size", [0, 95, 97])
def test_malformed_private_keys(size: int) -> None:
    expect_refusal("hpke_private_key", lambda: private_from_bytes(b"\x01" * size))
