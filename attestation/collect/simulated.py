"""The simulated attester: real keys and signatures, no hardware behind them.

Everything that verifies hardware evidence is exercised by it; nothing that it
says is proof. Policies refuse it unless they say `unsafe_simulated`.
"""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from attestation.collect.refusals import refuse_collect
from attestation.collect.source_tree import measure_source_tree
from attestation.parse.certificates import P256_ORDER
from attestation.parse.simulated import (
    MAX_TCB,
    MEASUREMENT_BYTES,
    REPORT_DATA_BYTES,
    SimulatedReport,
)
from attestation.types.evidence import SIMULATED, EvidenceBundle, RawEvidence

ROOT_NAME = "SIMULATED ATTESTATION ROOT, NOT HARDWARE, PROVES NOTHING"
LEAF_NAME = "SIMULATED ATTESTER, NOT HARDWARE"
DEFAULT_TCB = 1
DEFAULT_VALIDITY = timedelta(days=90)
_CLOCK_SKEW = timedelta(minutes=5)
_LOG = logging.getLogger(__name__)


class SimulatedEvidenceWarning(UserWarning):
    """Evidence is simulated: it proves nothing about the machine."""


def _read_clock() -> datetime:
    return datetime.now(UTC)


class SimulatedAttester:
    """An attester whose root key exists for its certificate only and is then forgotten.

    measurement: 48 bytes; the installed source tree's if None. debug, tcb:
    what the evidence claims. clock: gives an aware `now`. validity: of the
    root and leaf certificates. identity_pem: what `identity_pem()` of an earlier
    attester gave, to be the same device again. Raises CollectError on settings out of range.
    """

    kind = SIMULATED

    def __init__(
        self,
        measurement: bytes | None = None,
        *,
        debug: bool = False,
        tcb: int = DEFAULT_TCB,
        clock: Callable[[], datetime] = _read_clock,
        validity: timedelta = DEFAULT_VALIDITY,
        identity_pem: bytes | None = None,
    ) -> None:
        message = "SIMULATED attestation: this evidence proves nothing about hardware"
        warnings.warn(message, SimulatedEvidenceWarning, stacklevel=2)
        _LOG.warning(message)
        self._measurement = measure_source_tree() if measurement is None else measurement
        if len(self._measurement) != MEASUREMENT_BYTES:
            raise refuse_collect(
                "measurement_size",
                field="MEASUREMENT",
                expected=f"{MEASUREMENT_BYTES} bytes",
                got=f"{len(self._measurement)} bytes",
            )
        if not 0 <= tcb <= MAX_TCB:
            raise refuse_collect("tcb_range", field="TCB", expected=f"0 to {MAX_TCB}", got=str(tcb))
        self._debug = debug
        self._tcb = tcb
        self._clock = clock
        if identity_pem is not None:
            self._leaf_key, self._leaf, self._root = _read_identity(identity_pem)
            return
        root_key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        now = clock()
        window = (now - _CLOCK_SKEW, now + validity)
        self._root = _certify(
            ROOT_NAME, root_key.public_key(), ROOT_NAME, root_key, window, ca=True
        )
        self._leaf = _certify(
            LEAF_NAME, self._leaf_key.public_key(), ROOT_NAME, root_key, window, ca=False
        )

    def root_certificates(self) -> bytes:
        """PEM of the self-signed root that a verifier must be given to accept this attester."""
        return self._root.public_bytes(Encoding.PEM)

    def identity_pem(self) -> bytes:
        """The device's private key and both certificates: a device that outlives its process."""
        key = self._leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        chain = (self._leaf, self._root)
        return key + b"".join(each.public_bytes(Encoding.PEM) for each in chain)

    def collect_evidence(self, report_data: bytes) -> EvidenceBundle:
        """One simulated report over 64 bytes. Raises CollectError on another size."""
        if len(report_data) != REPORT_DATA_BYTES:
            raise refuse_collect(
                "report_data_size",
                field="REPORT_DATA",
                expected=f"{REPORT_DATA_BYTES} bytes",
                got=f"{len(report_data)} bytes",
            )
        report = SimulatedReport(
            report_data=report_data,
            measurement=self._measurement,
            debug=self._debug,
            tcb=self._tcb,
            issued_at=self._clock(),
            leaf=self._leaf.public_bytes(Encoding.DER),
            signature=b"",
        )
        signed = dataclasses.replace(report, signature=_sign(self._leaf_key, report.signed_bytes))
        return EvidenceBundle((RawEvidence(SIMULATED, signed.to_payload()),))


def _read_identity(
    pem: bytes,
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate, x509.Certificate]:
    try:
        key = load_pem_private_key(pem, password=None)
        chain = x509.load_pem_x509_certificates(pem)
    except (ValueError, TypeError):
        key, chain = None, []
    if not isinstance(key, ec.EllipticCurvePrivateKey) or len(chain) != 2:
        raise refuse_collect(
            "identity_malformed",
            field="identity",
            expected="PEM of a P-256 key, a leaf and a root",
            got="something else",
        )
    return key, chain[0], chain[1]


def _sign(key: ec.EllipticCurvePrivateKey, message: bytes) -> bytes:
    r, s = decode_dss_signature(key.sign(message, ec.ECDSA(hashes.SHA256())))
    # Of the two valid values of s the lower one is the only spelling parsers accept.
    return encode_dss_signature(r, min(s, P256_ORDER - s))


def _certify(
    name: str,
    key: ec.EllipticCurvePublicKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    window: tuple[datetime, datetime],
    *,
    ca: bool,
) -> x509.Certificate:
    usage = x509.KeyUsage(
        digital_signature=not ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    constraints = x509.BasicConstraints(ca=ca, path_length=0 if ca else None)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(window[0])
        .not_valid_after(window[1])
        .add_extension(constraints, critical=True)
        .add_extension(usage, critical=True)
        .sign(issuer_key, hashes.SHA256())
    )
