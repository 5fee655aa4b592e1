"""Parse the payload of simulated evidence (docs/spec/evidence.md, section Simulated)."""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509

from attestation.errors import MalformedEvidence
from attestation.parse.canonical import DocumentKind, parse_canonical, print_canonical
from attestation.parse.certificates import parse_certificate, parse_p256_signature
from attestation.parse.fields import Fields
from attestation.parse.times import print_time

FORMAT = "doubleblind-simulated-evidence/v1"
WARNING = "SIMULATED: proves nothing about hardware"
REPORT_DATA_BYTES = 64
MEASUREMENT_BYTES = 48
MAX_TCB = 2**31 - 1
MAX_SIMULATED_BYTES = 8 * 1024

_SIGNATURE_TAG = b"doubleblind/simulated-evidence/v1"
_MAX_LEAF_BYTES = 4 * 1024
_MAX_SIGNATURE_BYTES = 72
_PAYLOAD = DocumentKind(MalformedEvidence, "simulated", "simulated.format")


@dataclass(frozen=True, slots=True)
class SimulatedReport:
    """Parsed and not believed: what a simulated attester says, and its signature.

    report_data: 64 bytes. measurement: 48 bytes. leaf: DER certificate of the
    attester key. signature: strict DER ECDSA P-256 with SHA-256 over `signed_bytes`.
    """

    report_data: bytes
    measurement: bytes
    debug: bool
    tcb: int
    issued_at: datetime
    leaf: bytes
    signature: bytes

    def _unsigned(self) -> dict[str, object]:
        return {
            "format": FORMAT,
            "warning": WARNING,
            "report_data": self.report_data.hex(),
            "measurement": self.measurement.hex(),
            "debug": self.debug,
            "tcb": self.tcb,
            "issued_at": print_time(self.issued_at),
            "leaf": base64.b64encode(self.leaf).decode(),
        }

    @property
    def signed_bytes(self) -> bytes:
        """The message under the signature: tag, NUL, u32 length, RFC 8785 bytes."""
        body = print_canonical(self._unsigned(), kind=_PAYLOAD)
        return _SIGNATURE_TAG + b"\x00" + struct.pack(">I", len(body)) + body

    def to_payload(self) -> bytes:
        """RFC 8785 bytes of the whole report."""
        signature = base64.b64encode(self.signature).decode()
        return print_canonical({**self._unsigned(), "signature": signature}, kind=_PAYLOAD)


def parse_simulated(payload: bytes) -> SimulatedReport:
    """Parse the canonical payload. Raises MalformedEvidence; `to_payload()` gives it back."""
    value = parse_canonical(payload, kind=_PAYLOAD, max_bytes=MAX_SIMULATED_BYTES)
    fields = Fields(value, "simulated", _PAYLOAD)
    fields.constant("format", FORMAT)
    fields.constant("warning", WARNING)
    leaf = fields.base64("leaf", max_size=_MAX_LEAF_BYTES)
    signature = fields.base64("signature", max_size=_MAX_SIGNATURE_BYTES)
    report = SimulatedReport(
        report_data=fields.hex("report_data", REPORT_DATA_BYTES),
        measurement=fields.hex("measurement", MEASUREMENT_BYTES),
        debug=fields.flag("debug"),
        tcb=fields.integer("tcb", 0, MAX_TCB),
        issued_at=fields.time("issued_at"),
        leaf=leaf,
        signature=parse_p256_signature(signature, kind=_PAYLOAD, field="simulated.signature"),
    )
    fields.done()
    parse_leaf(report)
    return report


def parse_leaf(report: SimulatedReport) -> x509.Certificate:
    """The leaf certificate of a report, parsed completely."""
    return parse_certificate(report.leaf, kind=_PAYLOAD, field="simulated.leaf")
