"""Simulated evidence: parse and verify. Everything is signed with real keys, then one thing is wrong."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ObjectIdentifier
from hypothesis import given, settings
from hypothesis import strategies as st

from attestation.errors import (
    AttestationError,
    CheckState,
    EndorsementUnavailable,
    MalformedEvidence,
    MalformedPolicy,
    SignatureInvalid,
)
from attestation.parse.bundle import parse_evidence_bundle
from attestation.parse.simulated import parse_simulated
from attestation.parse.trust_roots import parse_trust_roots
from attestation.types import EvidenceBundle, RawEvidence, TrustRoots
from attestation.verify import verify_evidence
from tests.attestation.forging import (
    BINDING,
    LEAF,
    MEASUREMENT,
    NOW,
    ROOT,
    Certificate,
    Forger,
    high_s,
    key_usage,
    new_key,
)


def verify(bundle: EvidenceBundle, forger: Forger, now: datetime = NOW) -> None:
    verify_evidence(bundle, roots=forger.roots, now=now)


def failed(error: AttestationError) -> list[str]:
    return [check.name for check in error.checks if check.state == CheckState.FAILED]


def test_genuine_evidence_verifies(forger: Forger) -> None:
    bundle = forger.bundle()
    verified = verify_evidence(bundle, roots=forger.roots, now=NOW)
    (claims,) = verified.claims
    assert claims.report_data == BINDING  # type: ignore[union-attr]
    assert claims.measurement == MEASUREMENT  # type: ignore[union-attr]
    assert verified.evidence_digest == bundle.digest
    assert verified.valid_until == NOW + timedelta(days=1)
    states = {check.name: check.state for check in verified.checks}
    assert states.pop("simulated.hardware") == "not_checked"
    assert states.pop("simulated.revocation") == "not_checked"
    assert set(states) == {
        "evidence.format",
        "simulated.chain",
        "simulated.leaf_profile",
        "simulated.leaf_validity",
        "simulated.root_validity",
        "simulated.signature",
    }
    assert set(states.values()) == {"verified"}


# One check fails, and exactly that one.

FORGERIES: dict[str, tuple[Callable[[], tuple[EvidenceBundle, Forger]], type, str, str]] = {}


def forgery(check: str, error: type, code: str) -> Callable[[Callable[..., object]], object]:
    def register(function: Callable[..., object]) -> Callable[..., object]:
        FORGERIES[function.__name__] = (function, error, check, code)  # type: ignore[assignment]
        return function

    return register


def with_leaf(**changes: object) -> tuple[EvidenceBundle, Forger]:
    forger = Forger.new(leaf=Certificate(**changes))  # type: ignore[arg-type]
    return forger.bundle(), forger


@forgery("simulated.chain", SignatureInvalid, "simulated_chain")
def foreign_root_of_the_same_name() -> tuple[EvidenceBundle, Forger]:
    return Forger.new().bundle(), Forger.new()


@forgery("simulated.chain", SignatureInvalid, "simulated_chain")
def root_of_the_right_key_and_another_name() -> tuple[EvidenceBundle, Forger]:
    forger = Forger.new(leaf=Certificate(issuer="somebody"))
    return forger.bundle(), forger


@forgery("simulated.leaf_validity", EndorsementUnavailable, "simulated_leaf_expired")
def expired_leaf() -> tuple[EvidenceBundle, Forger]:
    return with_leaf(last=NOW - timedelta(seconds=1))


@forgery("simulated.leaf_validity", EndorsementUnavailable, "simulated_leaf_not_yet_valid")
def leaf_of_tomorrow() -> tuple[EvidenceBundle, Forger]:
    return with_leaf(first=NOW + timedelta(seconds=1))


@forgery("simulated.root_validity", EndorsementUnavailable, "simulated_root_expired")
def expired_root() -> tuple[EvidenceBundle, Forger]:
    root = Certificate(
        name="root",
        ca=True,
        usage=key_usage(key_cert_sign=True),
        last=NOW - timedelta(seconds=1),
    )
    forger = Forger.new(root=root)
    return forger.bundle(), forger


@forgery("simulated.leaf_profile", SignatureInvalid, "simulated_leaf_profile")
def leaf_that_is_a_ca() -> tuple[EvidenceBundle, Forger]:
    return with_leaf(ca=True)


@forgery("simulated.leaf_profile", SignatureInvalid, "simulated_leaf_profile")
def leaf_that_may_sign_certificates() -> tuple[EvidenceBundle, Forger]:
    return with_leaf(usage=key_usage(digital_signature=True, key_cert_sign=True))


@forgery("simulated.leaf_profile", SignatureInvalid, "simulated_leaf_profile")
def leaf_that_may_not_sign() -> tuple[EvidenceBundle, Forger]:
    return with_leaf(usage=key_usage(key_encipherment=True))


@forgery("simulated.leaf_profile", SignatureInvalid, "simulated_leaf_profile")
def leaf_with_uncritical_extensions() -> tuple[EvidenceBundle, Forger]:
    return with_leaf(critical=False)


@forgery("simulated.leaf_profile", SignatureInvalid, "simulated_leaf_profile")
def leaf_with_an_unknown_critical_extension() -> tuple[EvidenceBundle, Forger]:
    extension = x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4"), b"\x05\x00")
    return with_leaf(extra=((extension, True),))


@forgery("simulated.leaf_profile", SignatureInvalid, "simulated_leaf_profile")
def leaf_certified_with_another_hash() -> tuple[EvidenceBundle, Forger]:
    return with_leaf(hash=hashes.SHA384())


@forgery("simulated.leaf_profile", SignatureInvalid, "simulated_leaf_profile")
def leaf_on_another_curve() -> tuple[EvidenceBundle, Forger]:
    forger = Forger.new(leaf_key=new_key(ec.SECP256K1()))
    return forger.bundle(), forger


@forgery("simulated.signature", SignatureInvalid, "simulated_signature")
def signed_by_another_key() -> tuple[EvidenceBundle, Forger]:
    forger, other = Forger.new(), Forger.new()
    return forger.bundle(other.sign(forger.fields())), forger


@forgery("simulated.signature", SignatureInvalid, "simulated_signature")
def signed_for_another_purpose() -> tuple[EvidenceBundle, Forger]:
    forger = Forger.new()
    return forger.bundle(forger.sign(forger.fields(), tag=b"doubleblind/other/v1")), forger


@forgery("simulated.signature", SignatureInvalid, "simulated_signature")
def signed_by_the_root_itself() -> tuple[EvidenceBundle, Forger]:
    forger = Forger.new()
    root_signs = Forger(forger.root_key, forger.root_key, forger.root, forger.leaf)
    return forger.bundle(root_signs.sign(forger.fields())), forger


@pytest.mark.parametrize("name", sorted(FORGERIES))
def test_forgery_fails_exactly_its_check(name: str) -> None:
    make, error, check, code = FORGERIES[name]
    bundle, forger = make()
    with pytest.raises(error) as caught:
        verify(bundle, forger)
    assert type(caught.value) is error
    assert caught.value.code == code
    assert failed(caught.value) == [check]
    assert [finding.check for finding in caught.value.findings] == [check]


@pytest.mark.parametrize("field", ["report_data", "measurement", "debug", "tcb", "issued_at"])
def test_field_changed_after_signing(forger: Forger, field: str) -> None:
    changed = {
        "report_data": "00" * 64,
        "measurement": "00" * 48,
        "debug": True,
        "tcb": 2,
        "issued_at": "2026-12-01T12:00:01Z",
    }[field]
    bundle = forger.bundle(forger.sign(forger.fields()), **{field: changed})
    with pytest.raises(SignatureInvalid, match="simulated_signature"):
        verify(bundle, forger)


def test_no_root_injected(forger: Forger) -> None:
    with pytest.raises(EndorsementUnavailable) as caught:
        verify_evidence(forger.bundle(), roots=TrustRoots(), now=NOW)
    assert caught.value.code == "trust_root_missing"
    assert caught.value.exit_code == 4


def test_any_of_several_injected_roots(forger: Forger) -> None:
    roots = TrustRoots(simulated=Forger.new().roots.simulated + forger.roots.simulated)
    assert verify_evidence(forger.bundle(), roots=roots, now=NOW).claims


def test_independent_failures_are_reported_together() -> None:
    forger = Forger.new(leaf=Certificate(ca=True, last=NOW - timedelta(hours=1)))
    bundle = forger.bundle(Forger.new().sign(forger.fields()))
    with pytest.raises(SignatureInvalid) as caught:
        verify(bundle, Forger.new())
    assert failed(caught.value) == [
        "simulated.chain",
        "simulated.leaf_profile",
        "simulated.leaf_validity",
        "simulated.signature",
    ]
    assert all(finding.expected and finding.got for finding in caught.value.findings)


def test_several_items_are_numbered_and_all_reported(forger: Forger) -> None:
    good, bad = forger.payload(), forger.payload(Forger.new().sign(forger.fields()))
    bundle = EvidenceBundle((RawEvidence("simulated", good), RawEvidence("simulated", bad)))
    with pytest.raises(SignatureInvalid) as caught:
        verify(bundle, forger)
    assert failed(caught.value) == ["simulated[1].signature"]


@pytest.mark.parametrize("kind", ["sev-snp", "tdx", "nvidia-gpu", "tpm2", "nitro", "other"])
def test_kind_without_a_verifier_never_passes(forger: Forger, kind: str) -> None:
    items = (RawEvidence("simulated", forger.payload()), RawEvidence(kind, b"x"))
    for bundle in (EvidenceBundle(items[1:]), EvidenceBundle(items)):
        with pytest.raises(EndorsementUnavailable) as caught:
            verify(bundle, forger)
        assert caught.value.code == "kind_not_supported"
        assert failed(caught.value) == [f"{kind}.verifier"]


def test_naive_now_is_the_callers_fault(forger: Forger) -> None:
    with pytest.raises(ValueError, match="aware"):
        verify(forger.bundle(), forger, NOW.replace(tzinfo=None))


# Bytes.


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80])
def test_every_byte_of_the_payload_flipped(forger: Forger, mask: int) -> None:
    payload = forger.payload()
    outcomes = {MalformedEvidence: 0, SignatureInvalid: 0}
    for index in range(len(payload)):
        flipped = bytearray(payload)
        flipped[index] ^= mask
        with pytest.raises((MalformedEvidence, SignatureInvalid)) as caught:
            verify(EvidenceBundle((RawEvidence("simulated", bytes(flipped)),)), forger)
        outcomes[type(caught.value)] += 1
    assert outcomes[MalformedEvidence] > 100
    assert outcomes[SignatureInvalid] > 100 or mask != 0x01


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
def test_every_byte_of_the_signature_and_leaf_flipped(forger: Forger) -> None:
    fields = forger.fields()
    signature = forger.sign(fields)
    leaf = forger.leaf.public_bytes(Encoding.DER)
    for index in range(len(signature)):
        bad = bytearray(signature)
        bad[index] ^= 0x01
        with pytest.raises((MalformedEvidence, SignatureInvalid)):
            verify(forger.bundle(bytes(bad)), forger)
    for index in range(len(leaf)):
        bad = bytearray(leaf)
        bad[index] ^= 0x01
        # Signed again by the attester's own key: only the chain can tell.
        changed = base64.b64encode(bytes(bad)).decode()
        with pytest.raises((MalformedEvidence, SignatureInvalid, EndorsementUnavailable)):
            verify(forger.bundle(leaf=changed), forger)


def test_truncation_at_each_length(forger: Forger) -> None:
    payload = forger.payload()
    for size in range(1, len(payload)):
        with pytest.raises(MalformedEvidence):
            parse_simulated(payload[:size])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_raise_only_malformed(data: bytes) -> None:
    with pytest.raises(MalformedEvidence):
        parse_simulated(data)


FIELD_VALUES = st.fixed_dictionaries(
    {
        "report_data": st.binary(min_size=64, max_size=64).map(bytes.hex),
        "measurement": st.binary(min_size=48, max_size=48).map(bytes.hex),
        "debug": st.booleans(),
        "tcb": st.integers(0, 2**31 - 1),
        "issued_at": st.datetimes().map(
            lambda moment: f"{moment.year:04d}" + moment.strftime("-%m-%dT%H:%M:%SZ")
        ),
    }
)


@settings(max_examples=60, deadline=None)
@given(FIELD_VALUES)
def test_parse_print_compare(values: dict[str, object]) -> None:
    forger = _SHARED
    payload = forger.payload(**values)
    report = parse_simulated(payload)
    assert report.to_payload() == payload
    bundle = EvidenceBundle((RawEvidence("simulated", payload),))
    assert parse_evidence_bundle(bundle.to_bytes()) == bundle
    verify(bundle, forger)


_SHARED = Forger.new()


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "doubleblind-simulated-evidence/v2"},
        {"warning": "hardware"},
        {"report_data": "00" * 63},
        {"report_data": "00" * 65},
        {"report_data": "0A" * 64},
        {"report_data": 5},
        {"measurement": "00" * 47},
        {"debug": 0},
        {"debug": "false"},
        {"tcb": -1},
        {"tcb": 2**31},
        {"tcb": True},
        {"tcb": "1"},
        {"issued_at": "2026-12-01T12:00:00+00:00"},
        {"issued_at": "2026-12-01T12:00:00.0Z"},
        {"issued_at": "2026-13-01T12:00:00Z"},
        {"issued_at": "2026-12-01T12:00:60Z"},
        {"leaf": "AAAA"},
        {"leaf": ""},
        {"leaf": base64.b64encode(bytes(5000)).decode()},
        {"note": "x"},
    ],
    ids=lambda changes: f"{next(iter(changes))}={str(next(iter(changes.values())))[:24]}",
)
def test_malformed_field_although_signed(forger: Forger, changes: dict[str, object]) -> None:
    with pytest.raises(MalformedEvidence) as caught:
        verify(forger.bundle(**changes), forger)
    assert caught.value.code.startswith("simulated_")


@pytest.mark.parametrize("field", sorted(Forger.new().fields()))
def test_missing_field_although_signed(forger: Forger, field: str) -> None:
    fields = forger.fields()
    del fields[field]
    signature = base64.b64encode(forger.sign(fields)).decode()
    payload = rfc8785.dumps(fields | {"signature": signature})
    with pytest.raises(MalformedEvidence, match="simulated_field_missing"):
        parse_simulated(payload)


def test_leaf_with_trailing_bytes(forger: Forger) -> None:
    leaf = forger.leaf.public_bytes(Encoding.DER) + b"\x00"
    with pytest.raises(MalformedEvidence, match="simulated_certificate"):
        verify(forger.bundle(leaf=base64.b64encode(leaf).decode()), forger)


def test_leaf_whose_signature_has_unused_bits(forger: Forger) -> None:
    """The library would accept it half of the time; nothing signs that byte."""
    for _ in range(8):
        certificate = Forger.new().leaf
        leaf = bytearray(certificate.public_bytes(Encoding.DER))
        leaf[-len(certificate.signature) - 1] = 1
        with pytest.raises(MalformedEvidence, match="simulated_certificate"):
            verify(forger.bundle(leaf=base64.b64encode(bytes(leaf)).decode()), forger)


def test_leaf_with_an_rsa_key(forger: Forger) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    leaf = LEAF.sign(key.public_key(), forger.root_key)  # type: ignore[arg-type]
    encoded = base64.b64encode(leaf.public_bytes(Encoding.DER)).decode()
    with pytest.raises(MalformedEvidence, match="simulated_certificate"):
        verify(forger.bundle(leaf=encoded), forger)


@pytest.mark.parametrize("kind", ["high s", "trailing", "zero", "empty sequence", "long length"])
def test_malleable_signature(forger: Forger, kind: str) -> None:
    good = forger.sign(forger.fields())
    bad = {
        "high s": high_s(good),
        "trailing": good + b"\x00",
        "zero": bytes.fromhex("3006020100020100"),
        "empty sequence": bytes.fromhex("3000"),
        "long length": b"\x30\x81" + good[1:],
    }[kind]
    with pytest.raises(MalformedEvidence):
        verify(forger.bundle(bad), forger)


# Roots are the verifier's own input.


@pytest.mark.parametrize(
    "pem",
    [
        b"x",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        bytes(70_000),
    ],
)
def test_malformed_roots(pem: bytes, forger: Forger) -> None:
    with pytest.raises(MalformedPolicy):
        parse_trust_roots(simulated=pem)
    with pytest.raises(MalformedPolicy):
        verify_evidence(forger.bundle(), roots=TrustRoots(simulated=pem), now=NOW)


def test_a_leaf_is_no_root(forger: Forger) -> None:
    with pytest.raises(MalformedPolicy, match="trust_root_profile"):
        parse_trust_roots(simulated=forger.leaf.public_bytes(Encoding.PEM))


def test_a_root_signed_by_another_is_no_root() -> None:
    other, key = new_key(), new_key()
    root = ROOT.sign(key.public_key(), other)
    with pytest.raises(MalformedPolicy, match="trust_root_not_self_signed"):
        parse_trust_roots(simulated=root.public_bytes(Encoding.PEM))


def test_a_root_on_another_curve_is_no_root() -> None:
    key = new_key(ec.SECP384R1())
    root = ROOT.sign(key.public_key(), key)
    with pytest.raises(MalformedPolicy, match="trust_root_key"):
        parse_trust_roots(simulated=root.public_bytes(Encoding.PEM))
