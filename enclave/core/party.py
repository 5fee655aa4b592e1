"""Party document: who takes part, and with which public keys (docs/spec/plan.md)."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from enclave.core.canonical import parse_canonical, print_canonical
from enclave.core.errors import DocumentRefused
from enclave.core.fields import Fields
from enclave.core.hpke import PUBLIC_KEY_SIZE, parse_public
from enclave.core.signing_key import key_id, parse_signing_key
from enclave.core.vocabulary import PARTY_TYPE, ROLES

MAX_PARTY_BYTES = 16 * 1024
_MAX_CERTIFICATE_BYTES = 8 * 1024


@dataclass(frozen=True)
class Party:
    """One party's role, name and public keys; built by `parse_party` or from a plan.

    signing_key: SubjectPublicKeyInfo DER, ECDSA P-256 (signs approvals).
    tls_certificate: X.509 DER (client certificate of the channel).
    recipient_key: 1216 bytes, MLKEM768-X25519 (views are sealed to it).
    """

    role: str
    name: str
    signing_key: bytes
    tls_certificate: bytes
    recipient_key: bytes

    @property
    def key_id(self) -> str:
        """SHA-256 of the signing key, hex."""
        return key_id(self.signing_key)

    @cached_property
    def tls_spki_sha256(self) -> bytes:
        """SHA-256 of the certificate's SubjectPublicKeyInfo, 32 bytes."""
        return hashlib.sha256(certificate_spki(self.tls_certificate)).digest()

    @cached_property
    def tls_subject(self) -> bytes:
        """DER of the certificate's subject name."""
        return _load_certificate(self.tls_certificate).subject.public_bytes()

    def fields(self) -> dict[str, Any]:
        """The object as it stands in a plan: without `type`."""
        return {
            "role": self.role,
            "name": self.name,
            "signing_key": base64.b64encode(self.signing_key).decode(),
            "tls_certificate": base64.b64encode(self.tls_certificate).decode(),
            "recipient_key": base64.b64encode(self.recipient_key).decode(),
        }

    def to_json(self) -> dict[str, Any]:
        """The party document as a JSON object."""
        return {"type": PARTY_TYPE, **self.fields()}

    def to_bytes(self) -> bytes:
        """The party document as RFC 8785 bytes."""
        return print_canonical(self.to_json())


def _load_certificate(der: bytes) -> x509.Certificate:
    try:
        certificate = x509.load_der_x509_certificate(der)
        spelled_once = certificate.public_bytes(Encoding.DER) == der
        certificate.public_key()
        certificate.subject.public_bytes()  # parsed when asked for, so asked for here
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        raise DocumentRefused("tls_certificate", expected="an X.509 certificate, DER") from None
    if not spelled_once:
        raise DocumentRefused("tls_certificate", expected="DER without trailing bytes")
    return certificate


def certificate_spki(der: bytes) -> bytes:
    """SubjectPublicKeyInfo DER of an X.509 certificate."""
    key = _load_certificate(der).public_key()
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def read_party(fields: Fields) -> Party:
    """Read a party object without `type`, as plans hold it; every key is validated."""
    party = Party(
        role=fields.constant("role", *ROLES),
        name=fields.text("name", max_length=64),
        signing_key=fields.base64("signing_key", max_size=256),
        tls_certificate=fields.base64("tls_certificate", max_size=_MAX_CERTIFICATE_BYTES),
        recipient_key=fields.base64(
            "recipient_key", max_size=PUBLIC_KEY_SIZE, size=PUBLIC_KEY_SIZE
        ),
    )
    fields.done()
    parse_signing_key(party.signing_key)
    parse_public(party.recipient_key)
    _load_certificate(party.tls_certificate)
    return party


def parse_party(data: bytes) -> Party:
    """Parse a party document (canonical bytes, closed)."""
    fields = Fields(parse_canonical(data, max_bytes=MAX_PARTY_BYTES), "party")
    fields.constant("type", PARTY_TYPE)
    return read_party(fields)
