from __future__ import annotations

import hashlib
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from enclave.core.canonical import print_canonical
from enclave.core.party import certificate_spki, parse_party
from enclave.core.signing_key import key_id, parse_signing_key
from tests.core.builders import World, b64, expect_refusal

SPKI = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def test_parse_print_compare(world: World) -> None:
    party = world.owner.party
    parsed = parse_party(party.to_bytes())
    assert parsed == party
    assert parsed.to_bytes() == party.to_bytes()


def test_hashes(world: World) -> None:
    party = world.owner.party
    certificate = x509.load_der_x509_certificate(party.tls_certificate)
    spki = certificate.public_key().public_bytes(*SPKI)
    assert certificate_spki(party.tls_certificate) == spki
    assert party.tls_spki_sha256 == hashlib.sha256(spki).digest()
    assert (
        party.key_id == hashlib.sha256(party.signing_key).hexdigest() == key_id(party.signing_key)
    )
    assert b"Owner" in party.tls_subject


def p384() -> bytes:
    return ec.generate_private_key(ec.SECP384R1()).public_key().public_bytes(*SPKI)


def ed() -> bytes:
    return ed25519.Ed25519PrivateKey.generate().public_key().public_bytes(*SPKI)


def compressed() -> bytes:
    point = (
        ec.generate_private_key(ec.SECP256R1())
        .public_key()
        .public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    )
    algorithm = bytes.fromhex("301306072a8648ce3d020106082a8648ce3d030107")
    body = algorithm + b"\x03\x22\x00" + point
    return b"\x30" + bytes([len(body)]) + body


def off_curve() -> bytes:
    good = ec.generate_private_key(ec.SECP256R1()).public_key().public_bytes(*SPKI)
    return good[:-1] + bytes([good[-1] ^ 1])


@pytest.mark.parametrize(
    "make", [p384, ed, compressed, off_curve, lambda: b"", lambda: b"\x30\x00"]
)
def test_signing_keys_are_p256_in_one_spelling(make: Any) -> None:
    expect_refusal("signing_key", lambda: parse_signing_key(make()))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"role": "host"}, "document_field_value"),
        ({"name": ""}, "document_field_value"),
        ({"name": "a\nb"}, "document_field_value"),
        ({"name": "a" * 65}, "document_field_value"),
        ({"type": "https://w3id.org/double-blind/plan/v1"}, "document_field_value"),
        ({"signing_key": b64(b"key")}, "signing_key"),
        ({"tls_certificate": b64(b"certificate")}, "tls_certificate"),
        ({"recipient_key": b64(b"k" * 1215)}, "document_field_value"),
        ({"recipient_key": b64(b"\xff" * 1216)}, "hpke_public_key"),
        ({"comment": "x"}, "document_field_unknown"),
    ],
)
def test_refusals(world: World, change: dict[str, Any], code: str) -> None:
    document = {**world.owner.party.to_json(), **change}
    expect_refusal(code, lambda: parse_party(print_canonical(document)))


def test_certificates_carry_no_trailing_bytes(world: World) -> None:
    document = world.owner.party.to_json()
    document["tls_certificate"] = b64(world.owner.party.tls_certificate + b"\x00")
    expect_refusal("tls_certificate", lambda: parse_party(print_canonical(document)))


@pytest.mark.parametrize(
    "name", ["type", "role", "name", "signing_key", "tls_certificate", "recipient_key"]
)
def test_missing_fields(world: World, name: str) -> None:
    document = world.owner.party.to_json()
    del document[name]
    expect_refusal("document_field_missing", lambda: parse_party(print_canonical(document)))
