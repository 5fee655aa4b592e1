"""Verify simulated evidence (docs/spec/evidence.md, section Verifying).

The signature and the chain are real; only the root is nobody's but the verifier's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from attestation.errors import EndorsementUnavailable, SignatureInvalid
from attestation.parse.simulated import SimulatedReport, parse_leaf
from attestation.parse.times import print_time
from attestation.types.claims import SimulatedClaims
from attestation.verify.checklist import Checklist


def record_simulated(
    report: SimulatedReport,
    *,
    roots: Sequence[x509.Certificate],
    now: datetime,
    label: str,
    checks: Checklist,
) -> tuple[SimulatedClaims, datetime] | None:
    """Verify one report: record every check under `label`, for the caller to raise.

    Returns the claims and the last moment at which they hold, or None where a
    check failed (`checks` then raises).
    """
    leaf = parse_leaf(report)
    # 1. Chain: the injected root whose key signed the leaf. Names choose nothing.
    root = _issuer_of(leaf, roots)
    _record_chain(root, roots, label, checks)
    # 2. The leaf may sign evidence and nothing else.
    _record_profile(leaf, label, checks)
    # 3. Validity of every certificate used, at the caller's `now`.
    chain = (leaf,) if root is None else (leaf, root)
    for name, certificate in zip(("leaf", "root"), chain, strict=False):
        _record_validity(name, certificate, now, label, checks)
    # 4. Signature over the statement, by the leaf's key.
    _record_signature(leaf, report, label, checks)
    # 5. What a simulation can not prove is said.
    checks.not_checked(f"{label}.hardware")
    checks.not_checked(f"{label}.revocation")
    if root is None or checks.has_failures:
        return None
    claims = SimulatedClaims(
        report_data=report.report_data,
        measurement=report.measurement,
        debug=report.debug,
        tcb=report.tcb,
        issued_at=report.issued_at,
        root_sha256=hashlib.sha256(root.public_bytes(Encoding.DER)).hexdigest(),
    )
    return claims, min(certificate.not_valid_after_utc for certificate in chain)


def _issuer_of(
    leaf: x509.Certificate, roots: Sequence[x509.Certificate]
) -> x509.Certificate | None:
    for root in roots:
        try:
            leaf.verify_directly_issued_by(root)
        except (InvalidSignature, ValueError, TypeError):
            continue
        return root
    return None


def _record_chain(
    root: x509.Certificate | None, roots: Sequence[x509.Certificate], label: str, checks: Checklist
) -> None:
    name = f"{label}.chain"
    if root is not None:
        checks.verified(name)
    elif not roots:
        checks.failed(
            name,
            EndorsementUnavailable,
            code="trust_root_missing",
            field="leaf.issuer",
            expected="at least one injected root for simulated evidence",
            got="none",
        )
    else:
        checks.failed(
            name,
            SignatureInvalid,
            code="simulated_chain",
            field="leaf.signature",
            expected="made by an injected root",
            got=f"none of {len(roots)} roots made it",
        )


def _record_profile(leaf: x509.Certificate, label: str, checks: Checklist) -> None:
    name = f"{label}.leaf_profile"
    problem = _profile_problem(leaf)
    if not problem:
        checks.verified(name)
        return
    checks.failed(
        name,
        SignatureInvalid,
        code="simulated_leaf_profile",
        field="leaf",
        expected="a P-256 attester certificate: CA:FALSE and digitalSignature only, both critical",
        got=problem,
    )


def _profile_problem(leaf: x509.Certificate) -> str:
    """What makes the leaf unfit to sign evidence; empty if nothing does."""
    key = leaf.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        return "another key"
    if not isinstance(leaf.signature_hash_algorithm, hashes.SHA256):
        return "another signature hash"
    known = (x509.BasicConstraints, x509.KeyUsage)
    if any(each.critical and not isinstance(each.value, known) for each in leaf.extensions):
        return "an unknown critical extension"
    try:
        constraints = leaf.extensions.get_extension_for_class(x509.BasicConstraints)
        usage = leaf.extensions.get_extension_for_class(x509.KeyUsage)
    except x509.ExtensionNotFound:
        return "an extension is missing"
    if not constraints.critical or constraints.value.ca:
        return "CA:TRUE or not critical"
    if not usage.critical or usage.value != _SIGNS_ONLY:
        return "another key usage"
    return ""


_SIGNS_ONLY = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


def _record_validity(
    which: str, certificate: x509.Certificate, now: datetime, label: str, checks: Checklist
) -> None:
    name = f"{label}.{which}_validity"
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if first <= now <= last:
        checks.verified(name)
        return
    checks.failed(
        name,
        EndorsementUnavailable,
        code=f"simulated_{which}_{'expired' if now > last else 'not_yet_valid'}",
        field=f"{which}.validity",
        expected=f"{print_time(first)} to {print_time(last)}",
        got=print_time(now),
    )


def _record_signature(
    leaf: x509.Certificate, report: SimulatedReport, label: str, checks: Checklist
) -> None:
    name = f"{label}.signature"
    key = leaf.public_key()
    try:
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise InvalidSignature
        key.verify(report.signature, report.signed_bytes, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        checks.failed(
            name,
            SignatureInvalid,
            code="simulated_signature",
            field="signature",
            expected="ECDSA P-256 with SHA-256 by the leaf's key over the statement",
            got="another",
        )
    else:
        checks.verified(name)
