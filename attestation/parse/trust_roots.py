"""Parse the roots that a verifier injects."""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from attestation.errors import MalformedPolicy
from attestation.parse.canonical import DocumentKind
from attestation.parse.certificates import parse_certificate
from attestation.types.evidence import TrustRoots

_ROOTS = DocumentKind(MalformedPolicy, "trust_root", "policy.trust_roots")
_MAX_PEM_BYTES = 64 * 1024
_MAX_ROOTS = 16


def parse_trust_roots(*, simulated: bytes = b"") -> TrustRoots:
    """Check PEM roots early. Raises MalformedPolicy; empty means no root of that kind."""
    if simulated:
        parse_root_certificates(simulated)
    return TrustRoots(simulated=simulated)


def parse_root_certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    """Parse one or more PEM certificates: each self-signed, P-256, a CA."""
    if len(pem) > _MAX_PEM_BYTES:
        raise _ROOTS.refuse("size", "roots", f"at most {_MAX_PEM_BYTES} bytes", f"{len(pem)} bytes")
    try:
        loaded = x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise _ROOTS.refuse("not_pem", "roots", "PEM certificates") from None
    if not 1 <= len(loaded) <= _MAX_ROOTS:
        raise _ROOTS.refuse("count", "roots", f"1 to {_MAX_ROOTS}", str(len(loaded)))
    return tuple(
        _parse_root(each.public_bytes(Encoding.DER), f"roots[{index}]")
        for index, each in enumerate(loaded)
    )


def _parse_root(der: bytes, field: str) -> x509.Certificate:
    root = parse_certificate(der, kind=_ROOTS, field=field)
    key = root.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _ROOTS.refuse("key", field, "a P-256 key")
    try:
        constraints = root.extensions.get_extension_for_class(x509.BasicConstraints)
        usage = root.extensions.get_extension_for_class(x509.KeyUsage)
    except x509.ExtensionNotFound:
        raise _ROOTS.refuse("profile", field, "basicConstraints and keyUsage") from None
    if not constraints.critical or not constraints.value.ca or not usage.value.key_cert_sign:
        raise _ROOTS.refuse("profile", field, "critical CA:TRUE and keyCertSign")
    try:
        root.verify_directly_issued_by(root)
    except (InvalidSignature, ValueError, TypeError):
        raise _ROOTS.refuse("not_self_signed", field, "a self-signed certificate") from None
    return root
