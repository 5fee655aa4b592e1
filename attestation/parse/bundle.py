"""Parse an evidence bundle (docs/spec/evidence.md, section Format)."""

from __future__ import annotations

from attestation.errors import MalformedEvidence
from attestation.parse.canonical import DocumentKind, parse_canonical
from attestation.parse.fields import Fields
from attestation.types.evidence import (
    EVIDENCE_TYPE,
    MAX_BUNDLE_BYTES,
    MAX_ITEMS,
    MAX_PAYLOAD_BYTES,
    EvidenceBundle,
    RawEvidence,
)

_BUNDLE = DocumentKind(MalformedEvidence, "evidence", "evidence.format")


def parse_evidence_bundle(data: bytes) -> EvidenceBundle:
    """Parse canonical bundle bytes. Raises MalformedEvidence; `to_bytes()` gives `data` back."""
    value = parse_canonical(data, kind=_BUNDLE, max_bytes=MAX_BUNDLE_BYTES)
    fields = Fields(value, "evidence", _BUNDLE)
    fields.constant("type", EVIDENCE_TYPE)
    items = []
    for entry in fields.entries("items", 1, MAX_ITEMS):
        kind = entry.text("kind", max_length=32)
        payload = entry.base64("payload", max_size=MAX_PAYLOAD_BYTES)
        entry.done()
        items.append(RawEvidence(kind, payload))
    fields.done()
    return EvidenceBundle(tuple(items))
