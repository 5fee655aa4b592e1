"""A party's keys: made once by keygen, read back for each command.

Signing and TLS keys are ECDSA P-256, the recipient key is MLKEM768-X25519.
They lie unencrypted in the state directory, readable by their owner only.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from enclave.clients.party.errors import StateRefused
from enclave.clients.party.ledger import Ledger
from enclave.clients.party.state import StateDirectory
from enclave.core.hpke import (
    RecipientPrivateKey,
    generate_private,
    private_from_bytes,
    private_to_bytes,
    public_bytes,
)
from enclave.core.party import Party, certificate_spki, parse_party
from enclave.core.signing_key import print_signing_key

CERTIFICATE_LIFETIME = timedelta(days=730)
LEDGER_FILE = "ledger.sqlite"
PUBLIC_PARTY_FILE = "public/party.json"
_PARTY_FILE = "party.json"
_CLOCK_SKEW = timedelta(hours=1)


@dataclass(frozen=True)
class PartyKeys:
    """A party's document and its private keys."""

    party: Party
    signing_key: ec.EllipticCurvePrivateKey = field(repr=False)
    recipient_key: RecipientPrivateKey = field(repr=False)
    tls_key_pem: bytes = field(repr=False)
    tls_certificate_pem: bytes = field(repr=False)


def create_keys(state: StateDirectory, *, role: str, name: str, now: datetime) -> PartyKeys:
    """Make every key of a new party and its empty ledger; `party.json` comes last.

    A crash in between leaves no party.json: keygen starts again.
    Raises StateRefused `state_not_empty` when the directory already holds a party.
    """
    if state.has(_PARTY_FILE):
        raise StateRefused(
            "state_not_empty",
            expected="a directory without a party",
            got=str(state.root),
            hint="keys are made once: choose another directory",
        )
    signing = ec.generate_private_key(ec.SECP256R1())
    tls = ec.generate_private_key(ec.SECP256R1())
    recipient = generate_private()
    certificate = _issue_certificate(tls, role, now)
    state.write("signing_key.pem", _print_private(signing))
    state.write("tls_key.pem", _print_private(tls))
    state.write("tls_certificate.pem", certificate.public_bytes(Encoding.PEM))
    state.write("recipient_key", private_to_bytes(recipient))
    if not state.has(LEDGER_FILE):
        with Ledger.create(state.path(LEDGER_FILE)):
            pass
    party = Party(
        role=role,
        name=name,
        signing_key=print_signing_key(signing.public_key()),
        tls_certificate=certificate.public_bytes(Encoding.DER),
        recipient_key=public_bytes(recipient),
    )
    document = parse_party(party.to_bytes()).to_bytes()
    state.write(PUBLIC_PARTY_FILE, document)
    state.write(_PARTY_FILE, document)
    return load_keys(state)


def load_keys(state: StateDirectory) -> PartyKeys:
    """Read the party's keys; each must be the one its document names.

    Raises StateRefused `state_keys_mismatch`.
    """
    party = load_party(state)
    signing = _read_private(state, "signing_key.pem")
    tls_pem = state.read("tls_key.pem")
    tls = _read_private(state, "tls_key.pem")
    recipient = private_from_bytes(state.read("recipient_key"))
    certificate_pem = state.read("tls_certificate.pem")
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem)
    except ValueError:
        raise StateRefused("state_keys_mismatch", expected="tls_certificate.pem: PEM") from None
    for name, found, stated in (
        ("signing_key.pem", print_signing_key(signing.public_key()), party.signing_key),
        (
            "tls_certificate.pem",
            certificate.public_bytes(Encoding.DER),
            party.tls_certificate,
        ),
        (
            "tls_key.pem",
            print_signing_key(tls.public_key()),
            certificate_spki(party.tls_certificate),
        ),
        ("recipient_key", public_bytes(recipient), party.recipient_key),
    ):
        if found != stated:
            raise StateRefused("state_keys_mismatch", expected=f"{name}: the key of party.json")
    return PartyKeys(party, signing, recipient, tls_pem, certificate_pem)


def load_party(state: StateDirectory) -> Party:
    """The party's public document."""
    return parse_party(state.read(_PARTY_FILE))


def _issue_certificate(
    key: ec.EllipticCurvePrivateKey, role: str, now: datetime
) -> x509.Certificate:
    # gRPC refuses two pinned roots with one subject, so the name is random.
    label = f"{role.replace('_', '-')}-{secrets.token_hex(8)}"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, label)])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + CERTIFICATE_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(f"{label}.party.invalid")]), critical=False
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )


def _print_private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _read_private(state: StateDirectory, name: str) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(state.read(name), password=None)
    except (ValueError, TypeError):
        raise StateRefused("state_keys_mismatch", expected=f"{name}: a PEM private key") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise StateRefused("state_keys_mismatch", expected=f"{name}: an ECDSA P-256 key")
    return key
