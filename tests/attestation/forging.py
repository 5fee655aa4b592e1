"""A forger with real keys: every field of simulated evidence can be overridden before it is signed."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from attestation.appraise import (
    AppraisalPolicy,
    ReferenceValues,
    parse_authored_policy,
    parse_reference_values,
)
from attestation.types import EvidenceBundle, RawEvidence, TrustRoots

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
BINDING = bytes(range(64))
MEASUREMENT = bytes([7]) * 48
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
POLICIES = Path(__file__).parents[2] / "policies"
TAG = b"doubleblind/simulated-evidence/v1"


def policy_json(name: str = "unsafe_simulated") -> dict[str, Any]:
    value: dict[str, Any] = json.loads((POLICIES / f"{name}.json").read_bytes())
    return value


def policy(name: str = "unsafe_simulated", **rules: object) -> AppraisalPolicy:
    """A shipped policy with some rules of its simulated kind changed."""
    value = policy_json(name)
    if rules:
        value["kinds"]["simulated"].update(rules)
    return parse_authored_policy(json.dumps(value).encode())


def reference_values(measurement: bytes = MEASUREMENT, kind: str = "simulated") -> ReferenceValues:
    return parse_reference_values(
        rfc8785.dumps(
            {
                "type": "https://w3id.org/double-blind/reference-values/v1",
                "name": "test",
                "values": {
                    kind: {"measurements": [{"name": "x", "measurement": measurement.hex()}]}
                },
            }
        )
    )


def new_key(curve: ec.EllipticCurve | None = None) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve or ec.SECP256R1())


def sign_low_s(key: ec.EllipticCurvePrivateKey, message: bytes) -> bytes:
    """Sign until s is in the lower half: true on any curve, unlike negating s."""
    while True:
        der = key.sign(message, ec.ECDSA(hashes.SHA256()))
        if decode_dss_signature(der)[1] <= ORDER // 2:
            return der


def high_s(der: bytes) -> bytes:
    r, s = decode_dss_signature(der)
    return encode_dss_signature(r, max(s, ORDER - s))


def key_usage(**bits: bool) -> x509.KeyUsage:
    names = [
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    ]
    return x509.KeyUsage(**{name: bits.get(name, False) for name in names})


@dataclass(frozen=True)
class Certificate:
    """A certificate to be forged."""

    name: str = "leaf"
    issuer: str = "root"
    first: datetime = NOW - timedelta(days=1)
    last: datetime = NOW + timedelta(days=1)
    ca: bool = False
    usage: x509.KeyUsage = field(default_factory=lambda: key_usage(digital_signature=True))
    extra: tuple[tuple[x509.ExtensionType, bool], ...] = ()
    critical: bool = True
    hash: hashes.HashAlgorithm = field(default_factory=hashes.SHA256)

    def sign(
        self, key: ec.EllipticCurvePublicKey, issuer_key: ec.EllipticCurvePrivateKey
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.issuer)]))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.first)
            .not_valid_after(self.last)
            .add_extension(x509.BasicConstraints(self.ca, None), critical=self.critical)
            .add_extension(self.usage, critical=self.critical)
        )
        for extension, critical in self.extra:
            builder = builder.add_extension(extension, critical)
        return builder.sign(issuer_key, self.hash)


ROOT = Certificate(name="root", ca=True, usage=key_usage(key_cert_sign=True))
LEAF = Certificate()


@dataclass(frozen=True)
class Forger:
    """Real keys and certificates; `bundle()` signs whatever it is told to."""

    root_key: ec.EllipticCurvePrivateKey
    leaf_key: ec.EllipticCurvePrivateKey
    root: x509.Certificate
    leaf: x509.Certificate

    @classmethod
    def new(
        cls,
        *,
        root: Certificate = ROOT,
        leaf: Certificate = LEAF,
        leaf_key: ec.EllipticCurvePrivateKey | None = None,
    ) -> Forger:
        root_key, signer = new_key(), leaf_key or new_key()
        return cls(
            root_key,
            signer,
            root.sign(root_key.public_key(), root_key),
            leaf.sign(signer.public_key(), root_key),
        )

    @property
    def roots(self) -> TrustRoots:
        return TrustRoots(simulated=self.root.public_bytes(Encoding.PEM))

    def with_leaf(self, leaf: Certificate) -> Forger:
        return replace(self, leaf=leaf.sign(self.leaf_key.public_key(), self.root_key))

    def fields(self, **overrides: object) -> dict[str, Any]:
        return {
            "format": "doubleblind-simulated-evidence/v1",
            "warning": "SIMULATED: proves nothing about hardware",
            "report_data": BINDING.hex(),
            "measurement": MEASUREMENT.hex(),
            "debug": False,
            "tcb": 1,
            "issued_at": "2026-12-01T12:00:00Z",
            "leaf": base64.b64encode(self.leaf.public_bytes(Encoding.DER)).decode(),
        } | overrides

    def sign(self, fields: dict[str, Any], tag: bytes = TAG) -> bytes:
        body = rfc8785.dumps(fields)
        message = tag + b"\x00" + struct.pack(">I", len(body)) + body
        return sign_low_s(self.leaf_key, message)

    def payload(self, signature: bytes | None = None, **overrides: object) -> bytes:
        fields = self.fields(**overrides)
        made = self.sign(fields) if signature is None else signature
        return rfc8785.dumps(fields | {"signature": base64.b64encode(made).decode()})

    def bundle(self, signature: bytes | None = None, **overrides: object) -> EvidenceBundle:
        return EvidenceBundle((RawEvidence("simulated", self.payload(signature, **overrides)),))
