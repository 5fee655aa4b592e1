from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given, settings
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope as PeerEnvelope
from securesystemslib.signer import SSlibKey

from enclave.core.canonical import print_canonical
from enclave.core.dsse import (
    Envelope,
    encode_pae,
    parse_envelope,
    sign_envelope,
    verify_envelope,
)
from enclave.core.signing_key import key_id, print_signing_key
from tests.core.builders import b64, expect_refusal

ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
KEY = ec.generate_private_key(ec.SECP256R1())
SPKI = print_signing_key(KEY.public_key())
OTHER = ec.generate_private_key(ec.SECP256R1())
LIMIT = 4096


def test_pre_authentication_encoding() -> None:
    assert encode_pae(b"hello") == b"DSSEv1 28 application/vnd.in-toto+json 5 hello"


@settings(max_examples=40)
@given(st.binary(max_size=300))
def test_parse_print_compare_and_verify(payload: bytes) -> None:
    envelope = sign_envelope(payload, KEY)
    parsed = parse_envelope(envelope.to_bytes(), max_payload=LIMIT)
    assert parsed == envelope
    assert parsed.to_bytes() == envelope.to_bytes()
    verified = verify_envelope(parsed, SPKI)
    assert (verified.payload, verified.spki) == (payload, SPKI)


@settings(max_examples=20)
@given(st.binary(max_size=300))
def test_securesystemslib_verifies_ours(payload: bytes) -> None:
    envelope = json.loads(sign_envelope(payload, KEY).to_bytes())
    peer = PeerEnvelope.from_dict(envelope)
    key = SSlibKey.from_crypto(KEY.public_key(), keyid=key_id(SPKI))
    assert list(peer.verify([key], 1)) == [key_id(SPKI)]
    assert peer.payload == payload


def test_signing_is_deterministic_and_low_s() -> None:
    first = sign_envelope(b"payload", KEY)
    assert first == sign_envelope(b"payload", KEY)
    assert decode_dss_signature(first.signature)[1] <= ORDER // 2


def resign(signature: bytes, payload: bytes = b"payload", keyid: str = "") -> Envelope:
    return Envelope(payload, keyid or key_id(SPKI), signature)


def test_no_second_valid_envelope() -> None:
    good = sign_envelope(b"payload", KEY)
    r, s = decode_dss_signature(good.signature)
    high = encode_dss_signature(r, ORDER - s)
    # The high s is a valid ECDSA signature; it is refused because it is a second spelling.
    KEY.public_key().verify(high, encode_pae(b"payload"), ec.ECDSA(SHA256()))
    bad = [
        high,
        good.signature + b"\x00",
        good.signature[:-1],
        b"",
        b"\x00" * 70,
        encode_dss_signature(0, 0),
        encode_dss_signature(r, 0),
        encode_dss_signature(r, s + ORDER),
        encode_dss_signature(r + ORDER, s),
        # BER: a padded integer
        b"\x30"
        + bytes([good.signature[1] + 1])
        + b"\x02"
        + bytes([good.signature[3] + 1])
        + b"\x00"
        + good.signature[4:],
    ]
    for signature in bad:
        expect_refusal("dsse_signature", lambda sig=signature: verify_envelope(resign(sig), SPKI))


def test_other_payload_key_or_keyid() -> None:
    good = sign_envelope(b"payload", KEY)
    other = print_signing_key(OTHER.public_key())
    expect_refusal("dsse_signature", lambda: verify_envelope(resign(good.signature, b"p"), SPKI))
    expect_refusal("dsse_signature", lambda: verify_envelope(good, other))
    relabelled = resign(good.signature, keyid=key_id(other))
    expect_refusal("dsse_signature", lambda: verify_envelope(relabelled, other))
    expect_refusal("dsse_signature", lambda: verify_envelope(relabelled, SPKI))


def test_only_p256_signs() -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    expect_refusal("signing_key", lambda: sign_envelope(b"payload", key))


GOOD: dict[str, Any] = sign_envelope(b"payload", KEY).to_json()
SIGNATURE = GOOD["signatures"][0]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"signatures": []}, "document_field_value"),
        ({"signatures": [SIGNATURE, SIGNATURE]}, "document_field_value"),
        ({"signatures": [{**SIGNATURE, "cert": "x"}]}, "document_field_unknown"),
        ({"signatures": [{"sig": SIGNATURE["sig"]}]}, "document_field_missing"),
        ({"signatures": [{**SIGNATURE, "keyid": "KEY"}]}, "document_field_value"),
        ({"signatures": [{**SIGNATURE, "sig": "AA=A"}]}, "document_field_value"),
        ({"signatures": [{**SIGNATURE, "sig": b64(b"s" * 73)}]}, "document_field_value"),
        ({"signatures": ["x"]}, "document_field_type"),
        ({"payloadType": "application/json"}, "document_field_value"),
        ({"payload": GOOD["payload"].rstrip("=")}, "document_field_value"),
        ({"payload": b64(b"x" * (LIMIT + 1))}, "document_field_value"),
        ({"extra": 1}, "document_field_unknown"),
    ],
)
def test_malformed_envelopes(change: dict[str, Any], code: str) -> None:
    data = print_canonical({**GOOD, **change})
    expect_refusal(code, lambda: parse_envelope(data, max_payload=LIMIT))


def test_envelopes_are_canonical_and_bounded() -> None:
    spaced = json.dumps(GOOD).encode()
    expect_refusal("document_not_canonical", lambda: parse_envelope(spaced, max_payload=LIMIT))
    large = sign_envelope(b"x" * 9000, KEY).to_bytes()
    expect_refusal("document_too_large", lambda: parse_envelope(large, max_payload=LIMIT))
    parse_envelope(sign_envelope(b"x" * LIMIT, KEY).to_bytes(), max_payload=LIMIT)
