"""ECDSA P-256 keys as the documents carry them: SubjectPublicKeyInfo DER."""

from __future__ import annotations

import hashlib

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
)

from enclave.core.errors import DocumentRefused


def parse_signing_key(spki: bytes) -> ec.EllipticCurvePublicKey:
    """Parse the one DER spelling of a P-256 public key (uncompressed point, named curve)."""
    try:
        key = load_der_public_key(spki)
    except (ValueError, UnsupportedAlgorithm):
        raise DocumentRefused("signing_key", expected="SubjectPublicKeyInfo DER") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise DocumentRefused("signing_key", expected="an ECDSA P-256 key")
    if print_signing_key(key) != spki:
        raise DocumentRefused("signing_key", expected="the uncompressed DER spelling")
    return key


def print_signing_key(key: ec.EllipticCurvePublicKey) -> bytes:
    """SubjectPublicKeyInfo DER, 91 bytes for P-256."""
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def key_id(spki: bytes) -> str:
    """SHA-256 of the SubjectPublicKeyInfo, hex: the `keyid` of an envelope."""
    return hashlib.sha256(spki).hexdigest()
