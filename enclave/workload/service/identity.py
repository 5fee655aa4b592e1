"""The server's TLS identity: a key and a self-signed certificate made at start, kept in memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from enclave.wire.messages import SERVER_NAME

_LIFETIME = timedelta(days=90)
# The host sets the clock: what counts is that evidence binds the key, so be lenient.
_CLOCK_SLACK = timedelta(days=2)


@dataclass(frozen=True, repr=False)
class ServerIdentity:
    """A TLS key and its certificate. `key_pem` is secret.

    `spki_sha256` (32 bytes) is what a session's binding holds.
    """

    key_pem: bytes
    certificate_der: bytes
    spki_sha256: bytes

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return x509.load_der_x509_certificate(self.certificate_der).public_bytes(Encoding.PEM)


def make_server_identity(now: datetime) -> ServerIdentity:
    """A fresh P-256 identity for the name `enclave.invalid`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, SERVER_NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SLACK)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    spki = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return ServerIdentity(
        key_pem=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        certificate_der=certificate.public_bytes(Encoding.DER),
        spki_sha256=hashlib.sha256(spki).digest(),
    )
