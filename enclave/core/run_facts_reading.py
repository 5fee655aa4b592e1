"""Reading run facts: shapes and bounds only; the rules between fields are `receipt_rules.py`'s."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attestation.types import MAX_BUNDLE_BYTES
from enclave.core.approval import MAX_APPROVAL_BYTES
from enclave.core.binding import LABELS, NONCE_SIZE, RECEIPT_LABEL
from enclave.core.errors import DocumentRefused, ReceiptRefused
from enclave.core.fields import Fields
from enclave.core.hpke import PUBLIC_KEY_SIZE, parse_public
from enclave.core.plan import MAX_PLAN_BYTES, Plan, parse_plan
from enclave.core.plan_terms import TIERS
from enclave.core.run_facts import (
    PASSED,
    IsolationFacts,
    PartyEvidence,
    RunFacts,
    SealedRelease,
    SessionEvidence,
    SessionKeys,
    WipeFacts,
)
from enclave.core.signing_key import parse_signing_key
from enclave.core.times import parse_time
from enclave.core.vocabulary import APPROVING_ROLES, DIGEST_SIZE, MAX_RUNS, ROLES, SESSION_SIZE

_MAX_COUNT = 10_000_000
_MAX_WIPED = 2**50


def _read_keys(fields: Fields) -> SessionKeys:
    keys = SessionKeys(
        bytes.fromhex(fields.hex("tls_spki_sha256", DIGEST_SIZE)),
        fields.base64("hpke_key", max_size=PUBLIC_KEY_SIZE, size=PUBLIC_KEY_SIZE),
        fields.base64("signing_key", max_size=256),
    )
    fields.done()
    # Judged here, so that nobody who reads a receipt computes a binding over malformed keys.
    parse_public(keys.hpke_key)
    parse_signing_key(keys.signing_key)
    return keys


def _read_approval(value: object) -> bytes:
    return Fields({"envelope": value}, "run.approvals").base64(
        "envelope", max_size=MAX_APPROVAL_BYTES
    )


def _read_evidence(value: object) -> SessionEvidence:
    fields = Fields(value, "run.evidence")
    entry = SessionEvidence(
        fields.constant("label", *(label for label in LABELS if label != RECEIPT_LABEL)),
        bytes.fromhex(fields.hex("nonce", NONCE_SIZE)),
        fields.base64("evidence", max_size=MAX_BUNDLE_BYTES),
    )
    fields.done()
    return entry


def _read_party_evidence(value: object) -> PartyEvidence:
    fields = Fields(value, "run.party_evidence")
    entry = PartyEvidence(
        fields.constant("role", *APPROVING_ROLES),
        bytes.fromhex(fields.hex("challenge", NONCE_SIZE)),
        fields.base64("evidence", max_size=MAX_BUNDLE_BYTES),
    )
    fields.done()
    return entry


def _read_isolation(fields: Fields) -> IsolationFacts:
    isolation = IsolationFacts(
        fields.constant("tier", *TIERS),
        fields.hex("profile_digest", DIGEST_SIZE),
        fields.integer("probes_tried", 1, _MAX_COUNT),
        fields.integer("probes_refused", 0, _MAX_COUNT),
    )
    fields.done()
    return isolation


def _read_wipe(fields: Fields) -> WipeFacts:
    wipe = WipeFacts(fields.integer("files", 1, _MAX_COUNT), fields.integer("bytes", 1, _MAX_WIPED))
    if not fields.flag("verified"):
        raise ReceiptRefused("receipt_wipe_unverified", expected="verified: true")
    fields.done()
    return wipe


def _read_release(value: object) -> SealedRelease:
    fields = Fields(value, "run.releases")
    release = SealedRelease(
        fields.identifier("view"),
        fields.constant("role", *ROLES),
        fields.hex("sha256", DIGEST_SIZE),
        fields.integer("size", 1, 2**20),
    )
    fields.done()
    return release


def _read_engine(fields: Fields) -> Mapping[str, str]:
    entries = fields.mapping("engine", 1, 64)
    texts = Fields(entries, "run.engine")
    return MappingProxyType({key: texts.text(key) for key in sorted(entries)})


def _read_controls(fields: Fields) -> tuple[str, ...]:
    entries = fields.mapping("controls", 1, 32)
    states = Fields(entries, "run.controls")
    for control in entries:
        states.constant(control, PASSED)
    return tuple(sorted(entries))


def _read_slot(fields: Fields, name: str) -> str:
    slot = fields.text(name, max_length=20)
    parse_time(slot)
    return slot


def _read_plan(fields: Fields) -> Plan:
    plan = parse_plan(fields.base64("plan", max_size=MAX_PLAN_BYTES))
    policies = fields.object("policies")
    for name in ("attestation_policy", "reference_values", "result_policy"):
        if policies.hex(name, DIGEST_SIZE) != getattr(plan, name):
            raise ReceiptRefused("receipt_other_policy", expected=f"the plan's {name}")
    policies.done()
    return plan


def read_run_facts(predicate: Mapping[str, Any]) -> RunFacts:
    """Read a predicate; shapes only, the rules between fields are `receipt.py`'s."""
    fields = Fields(predicate, "run")
    samples = fields.object("samples")
    facts = RunFacts(
        plan=_read_plan(fields),
        session=fields.hex("session", SESSION_SIZE),
        run=fields.integer("run", 1, MAX_RUNS),
        keys=_read_keys(fields.object("keys")),
        approvals=tuple(_read_approval(each) for each in fields.array("approvals", 2, 2)),
        evidence=tuple(_read_evidence(each) for each in fields.array("evidence", 1, len(ROLES))),
        party_evidence=tuple(
            _read_party_evidence(each) for each in fields.array("party_evidence", 0, 2)
        ),
        engine=_read_engine(fields),
        isolation=_read_isolation(fields.object("isolation")),
        controls=_read_controls(fields),
        completed=samples.integer("completed", 0, _MAX_COUNT),
        failed=samples.integer("failed", 0, _MAX_COUNT),
        wipe=_read_wipe(fields.object("wipe")),
        releases=tuple(_read_release(each) for each in fields.array("releases", 1, 64)),
        bits=fields.integer("bits", 1, 2**20),
        runs_spent=fields.integer("runs_spent", 1, MAX_RUNS),
        started_slot=_read_slot(fields, "started_slot"),
        finished_slot=_read_slot(fields, "finished_slot"),
    )
    samples.done()
    fields.done()
    if len(set(facts.releases)) != len(facts.releases):
        raise DocumentRefused("document_field_value", expected="run.releases: distinct")
    return facts
