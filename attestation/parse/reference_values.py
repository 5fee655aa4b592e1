"""Parse reference values: what genuine, agreed images measure to (RATS: Reference Values).

Emitted by images/, pinned by digest in the plan. Format:
docs/spec/attestation-policy.md, section Reference values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from attestation.errors import MalformedPolicy
from attestation.parse.canonical import (
    DocumentKind,
    parse_canonical,
    parse_object,
    print_canonical,
)
from attestation.parse.fields import Fields
from attestation.types.evidence import SEV_SNP, SIMULATED

REFERENCE_VALUES_TYPE = "https://w3id.org/double-blind/reference-values/v1"
MAX_REFERENCE_VALUES_BYTES = 256 * 1024
_VALUES = DocumentKind(MalformedPolicy, "reference_values", "policy.reference_values")
_MAX_MEASUREMENTS = 512

MEASUREMENT_SIZES = {SEV_SNP: 48, SIMULATED: 48}
"""Bytes of a MEASUREMENT by kind. GPUs are compared with signed RIMs instead."""


@dataclass(frozen=True, slots=True)
class ReferenceValues:
    """Accepted measurements by kind: `{kind: {measurement hex: its name}}`."""

    name: str
    measurements: Mapping[str, Mapping[str, str]]
    document: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of `to_bytes()` as 64 lower hex digits."""
        return hashlib.sha256(self.document).hexdigest()

    def to_bytes(self) -> bytes:
        """The RFC 8785 bytes of the document."""
        return self.document


def parse_reference_values(data: bytes) -> ReferenceValues:
    """Parse the document in its one spelling. Raises MalformedPolicy."""
    return _read(parse_canonical(data, kind=_VALUES, max_bytes=MAX_REFERENCE_VALUES_BYTES))


def parse_authored_reference_values(data: bytes) -> ReferenceValues:
    """Parse the document as an author wrote it: whitespace and the order of keys are free."""
    return _read(parse_object(data, kind=_VALUES, max_bytes=MAX_REFERENCE_VALUES_BYTES))


def _read(value: dict[str, Any]) -> ReferenceValues:
    fields = Fields(value, "reference_values", _VALUES)
    fields.constant("type", REFERENCE_VALUES_TYPE)
    name = fields.identifier("name")
    by_kind = fields.object("values")
    kinds = fields.keys("values")
    if not kinds:
        raise _VALUES.refuse("empty", "reference_values.values", "at least one kind", "{}")
    measurements = {}
    for kind in kinds:
        if kind not in MEASUREMENT_SIZES:
            expected = " or ".join(MEASUREMENT_SIZES)
            raise _VALUES.refuse("kind_unknown", "reference_values.values", expected, repr(kind))
        entry = by_kind.object(kind)
        measurements[kind] = _read_measurements(entry, MEASUREMENT_SIZES[kind])
        entry.done()
    by_kind.done()
    fields.done()
    return ReferenceValues(
        name=name,
        measurements=MappingProxyType(measurements),
        document=print_canonical(value, kind=_VALUES),
    )


def _read_measurements(fields: Fields, size: int) -> Mapping[str, str]:
    named: dict[str, str] = {}
    for entry in fields.entries("measurements", 1, _MAX_MEASUREMENTS):
        name = entry.text("name", max_length=100)
        measurement = entry.hex("measurement", size).hex()
        entry.done()
        if measurement in named:
            raise _VALUES.refuse(
                "duplicate", "reference_values.measurements", "distinct", measurement
            )
        named[measurement] = name
    return MappingProxyType(named)
