"""Parse X.509 certificates completely, so that no later stage meets a foreign exception."""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.serialization import Encoding

from attestation.parse.canonical import DocumentKind

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551

_UNREADABLE = (
    ValueError,
    TypeError,
    OverflowError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


def parse_certificate(der: bytes, *, kind: DocumentKind, field: str) -> x509.Certificate:
    """Parse one DER certificate with an EC key; nothing may follow it."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        # Touched here: cryptography decodes these lazily.
        _ = (
            certificate.extensions,
            certificate.issuer,
            certificate.subject,
            certificate.not_valid_before_utc,
            certificate.not_valid_after_utc,
            certificate.signature_hash_algorithm,
            certificate.signature_algorithm_parameters,
            certificate.serial_number,
        )
        key = certificate.public_key()
        printed = certificate.public_bytes(Encoding.DER)
    except _UNREADABLE:
        raise kind.refuse("certificate", field, "a DER X.509 certificate") from None
    if printed != der:
        raise kind.refuse("certificate", field, "DER without trailing bytes")
    # The library ignores the BIT STRING's count of unused bits, which nothing signs.
    if not der.endswith(b"\x00" + certificate.signature):
        raise kind.refuse("certificate", field, "a signature of whole bytes")
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise kind.refuse("certificate", field, "an elliptic-curve key", type(key).__name__)
    return certificate


def parse_p256_signature(der: bytes, *, kind: DocumentKind, field: str) -> bytes:
    """Demand a strict DER ECDSA signature with s in the lower half, so it has one spelling."""
    try:
        r, s = decode_dss_signature(der)
        strict = encode_dss_signature(r, s) == der
    except ValueError:
        raise kind.refuse("signature_format", field, "DER ECDSA signature") from None
    if not strict or not 0 < r < P256_ORDER or not 0 < s <= P256_ORDER // 2:
        raise kind.refuse("signature_format", field, "strict DER, r in range, s in the lower half")
    return der
