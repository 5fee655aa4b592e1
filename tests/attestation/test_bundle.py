"""Evidence bundles: one spelling, caps, no foreign exception."""

from __future__ import annotations

import base64
import json

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from attestation.errors import AttestationError, MalformedEvidence
from attestation.parse.bundle import parse_evidence_bundle
from attestation.types import MAX_ITEMS, MAX_PAYLOAD_BYTES, EvidenceBundle, RawEvidence

TYPE = "https://w3id.org/double-blind/evidence/v1"
KINDS = st.from_regex(r"[a-z][a-z0-9-]{0,31}", fullmatch=True)
ITEMS = st.lists(
    st.builds(RawEvidence, KINDS, st.binary(min_size=1, max_size=200)),
    min_size=1,
    max_size=6,
    unique=True,
)


def document(**changes: object) -> bytes:
    value = {"type": TYPE, "items": [{"kind": "simulated", "payload": "AAAA"}]}
    return rfc8785.dumps(value | changes)  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None)
@given(ITEMS)
def test_parse_print_compare(items: list[RawEvidence]) -> None:
    bundle = EvidenceBundle(tuple(items))
    assert parse_evidence_bundle(bundle.to_bytes()) == bundle
    assert parse_evidence_bundle(bundle.to_bytes()).digest == bundle.digest


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_raise_only_malformed(data: bytes) -> None:
    with pytest.raises(MalformedEvidence):
        parse_evidence_bundle(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(JSON, JSON)
def test_any_json_raises_only_malformed(first: object, second: object) -> None:
    for value in (first, {"type": TYPE, "items": first}, {"type": TYPE, "items": [second]}):
        with pytest.raises(MalformedEvidence):
            parse_evidence_bundle(json.dumps(value).encode())


def test_lone_surrogate_is_malformed() -> None:
    with pytest.raises(MalformedEvidence):
        parse_evidence_bundle(b'{"items":"\\ud800","type":"x"}')


def test_truncation_at_each_length() -> None:
    data = document()
    for size in range(len(data)):
        with pytest.raises(MalformedEvidence):
            parse_evidence_bundle(data[:size])


@pytest.mark.parametrize("tail", [b" ", b"\n", b"{}", b"\x00", b"a"])
def test_trailing_bytes(tail: bytes) -> None:
    with pytest.raises(MalformedEvidence):
        parse_evidence_bundle(document() + tail)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (document(extra=1), "evidence_field_unknown"),
        (document(type="x"), "evidence_field_value"),
        (document(items=[]), "evidence_field_value"),
        (document(items={}), "evidence_field_type"),
        (document(items=[1]), "evidence_field_type"),
        (document(items=[{"kind": "a"}]), "evidence_field_missing"),
        (document(items=[{"payload": "AAAA"}]), "evidence_field_missing"),
        (document(items=[{"kind": "A", "payload": "AAAA"}]), "evidence_kind"),
        (document(items=[{"kind": "a", "payload": ""}]), "evidence_field_value"),
        (document(items=[{"kind": "a", "payload": "AAB="}]), "evidence_field_value"),
        (document(items=[{"kind": "a", "payload": "AA=="}] * 2), "evidence_duplicate"),
        (document(items=[{"kind": "a", "payload": "A A A"}]), "evidence_field_value"),
        (document(items=[{"kind": "a", "payload": "AAA_"}]), "evidence_field_value"),
        (
            document(items=[{"kind": "a", "payload": "AAAA", "note": ""}]),
            "evidence_field_unknown",
        ),
        (json.dumps(json.loads(document()), indent=1).encode(), "evidence_not_canonical"),
        (b'{"type":1,"type":1}', "evidence_not_strict"),
        (b'{"type":1.0}', "evidence_not_strict"),
        (b'{"type":1e3}', "evidence_not_strict"),
        (b'{"type":NaN}', "evidence_not_strict"),
        (b'{"type":9007199254740992}', "evidence_not_strict"),
        (b'{"type":' + b"9" * 5000 + b"}", "evidence_not_strict"),
        (b'{"type":-0}', "evidence_not_canonical"),
        (b"[" * 100_000, "evidence_not_json"),
        (b'{"a":' * 20 + b"1" + b"}" * 20, "evidence_not_strict"),
        (b"[]", "evidence_not_object"),
        (b"\xff", "evidence_not_json"),
        (b"", "evidence_not_json"),
        (b"\xef\xbb\xbf" + document(), "evidence_not_json"),
        (b" " * (2 * 1024 * 1024 + 1), "evidence_size"),
    ],
)
def test_malformed(data: bytes, code: str) -> None:
    with pytest.raises(MalformedEvidence) as caught:
        parse_evidence_bundle(data)
    assert caught.value.code == code
    assert caught.value.findings
    assert caught.value.exit_code == 2


def test_caps_hold_for_bundles_made_here() -> None:
    with pytest.raises(MalformedEvidence, match="evidence_count"):
        EvidenceBundle(())
    many = tuple(RawEvidence("a", bytes([1, index])) for index in range(MAX_ITEMS + 1))
    with pytest.raises(MalformedEvidence, match="evidence_count"):
        EvidenceBundle(many)
    with pytest.raises(MalformedEvidence, match="evidence_size"):
        RawEvidence("a", bytes(MAX_PAYLOAD_BYTES + 1))
    with pytest.raises(MalformedEvidence, match="evidence_size"):
        RawEvidence("a", b"")
    with pytest.raises(MalformedEvidence, match="evidence_size"):
        EvidenceBundle((RawEvidence("a", bytes(2**20)), RawEvidence("b", bytes(2**20))))
    largest = EvidenceBundle((RawEvidence("a", bytes(MAX_PAYLOAD_BYTES)),))
    assert parse_evidence_bundle(largest.to_bytes()) == largest


def test_error_is_plain_data() -> None:
    with pytest.raises(AttestationError) as caught:
        parse_evidence_bundle(document(type=base64.b64encode(b"secret").decode()))
    shown = caught.value.as_json()
    assert shown["stage"] == "parse"
    assert shown["exit_code"] == 2
    assert shown["findings"][0]["field"] == "evidence.type"
    assert json.loads(json.dumps(shown)) == shown
