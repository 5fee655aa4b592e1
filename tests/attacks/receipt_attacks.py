"""Attacks on receipts: altered, forged, of another run, or of an enclave that lies."""

from __future__ import annotations

import base64
import json
from copy import copy
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from attestation.errors import SignatureInvalid
from enclave.clients.party.results import fetch_receipt, fetch_views
from enclave.core.canonical import print_canonical
from enclave.core.errors import (
    ApprovalRefused,
    BindingRefused,
    DocumentRefused,
    PlanRefused,
    ReceiptRefused,
    ReleaseRefused,
)
from enclave.core.receipt import build_receipt_statement
from enclave.core.signing_key import print_signing_key
from tests.attacks.acceptance import HOST, MODEL_OWNER, NETWORK, Refused, Step, Table
from tests.attacks.documents import frame_with
from tests.attacks.grant_attacks import run_once
from tests.attacks.receipts import MadeReceipt, Predicate, lie, make_receipt, refuse_audit
from tests.attacks.result_attacks import framed, released
from tests.attacks.scene import Stage, Workload

ATTACKS = Table()
EACH_FIELD = "altered receipt in each field"


# Altered on the way.


def altered(stage: Stage, edit: Any) -> Step:
    """The file's JSON edited by who stores it."""
    document = json.loads(make_receipt(stage).honest())
    edit(document)
    data = print_canonical(document)
    return lambda: refuse_audit(stage, data)


def flip(text: str) -> str:
    data = bytearray(base64.b64decode(text))
    data[-1] ^= 0x01
    return base64.b64encode(data).decode()


@ATTACKS.add(
    "receipt-fact-altered",
    by=HOST,
    covers=EACH_FIELD,
    error=ReceiptRefused,
    code="receipt_subject",
)
def receipt_fact_altered(stage: Stage) -> Step:
    def edit(document: dict[str, Any]) -> None:
        statement = json.loads(base64.b64decode(document["envelope"]["payload"]))
        statement["predicate"]["samples"]["completed"] -= 1
        payload = base64.b64encode(print_canonical(statement)).decode()
        document["envelope"]["payload"] = payload

    return altered(stage, edit)


@ATTACKS.add(
    "receipt-signature-altered",
    by=NETWORK,
    covers=EACH_FIELD,
    error=DocumentRefused,
    code="dsse_signature",
)
def receipt_signature_altered(stage: Stage) -> Step:
    def edit(document: dict[str, Any]) -> None:
        signature = document["envelope"]["signatures"][0]
        signature["sig"] = flip(signature["sig"])

    return altered(stage, edit)


@ATTACKS.add("receipt-with-a-score", by=HOST, error=DocumentRefused, code="document_field_unknown")
def receipt_with_a_score(stage: Stage) -> Step:
    """A score smuggled into the receipt, signed and quoted: no field for it."""
    return lie(stage, lambda predicate: predicate.update(accuracy="0.5"))


@ATTACKS.add("receipt-of-another-plan", by=HOST, error=PlanRefused, code="audit_other_plan")
def receipt_of_another_plan(stage: Stage) -> Step:
    """A genuine receipt, shown to somebody who holds another plan."""
    data = make_receipt(stage).honest()
    return lambda: refuse_audit(stage, data, stage.scene.other_directory)


# Forged with keys of the attacker's, or with leaked ones.


@ATTACKS.add("receipt-own-key", by=HOST, error=BindingRefused, code="binding_mismatch")
def receipt_own_key(stage: Stage) -> Step:
    """The host signs with a key of its own and names it: no evidence speaks for that key."""
    receipt, key = make_receipt(stage), ec.generate_private_key(ec.SECP256R1())
    predicate = receipt.predicate
    spki = print_signing_key(key.public_key())
    predicate["keys"]["signing_key"] = base64.b64encode(spki).decode()
    data = receipt.signed(predicate, key, quote=True)
    return lambda: refuse_audit(stage, data)


@ATTACKS.add("receipt-key-leaked", by=HOST, error=BindingRefused, code="binding_mismatch")
def receipt_key_leaked(stage: Stage) -> Step:
    """Signed again with the leaked receipt key: the closing quote is over the first one."""
    return lie(stage, lambda predicate: predicate["samples"].update(completed=99), quote=False)


@ATTACKS.add("receipt-closing-exchanged", by=HOST, error=BindingRefused, code="binding_mismatch")
def receipt_closing_exchanged(stage: Stage) -> Step:
    """The quote that closed another receipt of the same enclave."""
    first, second = (json.loads(make_receipt(stage).honest()) for _ in range(2))
    data = print_canonical({**first, "closing": second["closing"]})
    return lambda: refuse_audit(stage, data)


@ATTACKS.add("receipt-own-root", by=HOST, error=SignatureInvalid, code="simulated_chain")
def receipt_own_root(stage: Stage) -> Step:
    """A whole evaluation invented by the host, with a simulated machine of its own."""
    own = copy(stage.scene)
    own.__dict__["genuine"] = stage.scene.attester()
    forging = Stage(own, stage.folder / "forged", stage.closing)
    data = make_receipt(forging).honest()
    return lambda: refuse_audit(stage, data)


# An enclave that lies: signed by the session's key, closed by a genuine quote.


def lies(name: str, code: str, error: Refused, edit: Any) -> None:
    """An entry whose whole attack is one false statement."""
    ATTACKS.add(name, by=HOST, error=error, code=code, covers=EACH_FIELD)(
        lambda stage: lie(stage, edit)
    )


def twice(predicate: Predicate) -> None:
    predicate["approvals"][1] = predicate["approvals"][0]


def same_nonce(predicate: Predicate) -> None:
    predicate["evidence"][1]["nonce"] = predicate["evidence"][0]["nonce"]


def one_party(predicate: Predicate) -> None:
    del predicate["evidence"][1]


def false_policy(predicate: Predicate) -> None:
    predicate["policies"]["result_policy"] = "ee" * 32


def unsaid_control(predicate: Predicate) -> None:
    del predicate["controls"]["null_answer"]


def shared_key(predicate: Predicate) -> None:
    plan = json.loads(base64.b64decode(predicate["plan"]))
    predicate["keys"]["hpke_key"] = plan["parties"][0]["recipient_key"]


def malformed_key(predicate: Predicate) -> None:
    predicate["keys"]["signing_key"] = flip(predicate["keys"]["signing_key"])


def nobody_asked(predicate: Predicate) -> None:
    entry = {**predicate["evidence"][0], "role": "model_owner"}
    entry["challenge"] = entry.pop("nonce")
    del entry["label"]
    predicate["party_evidence"] = [entry]


lies(
    "receipt-tier-too-low",
    "document_field_value",
    DocumentRefused,
    lambda p: p["isolation"].update(tier="T0"),
)
lies(
    "receipt-probe-got-through",
    "receipt_probe_passed",
    ReceiptRefused,
    lambda p: p["isolation"].update(probes_refused=23),
)
lies(
    "receipt-too-many-samples",
    "receipt_samples",
    ReceiptRefused,
    lambda p: p["samples"].update(completed=1001),
)
lies("receipt-release-left-out", "receipt_releases", ReceiptRefused, lambda p: p["releases"].pop())
lies(
    "receipt-release-resized",
    "receipt_releases",
    ReceiptRefused,
    lambda p: p["releases"][0].update(size=77),
)
lies("receipt-bits-understated", "receipt_bits", ReceiptRefused, lambda p: p.update(bits=1))
lies("receipt-control-left-out", "receipt_controls", ReceiptRefused, unsaid_control)
lies(
    "receipt-control-failed",
    "document_field_value",
    DocumentRefused,
    lambda p: p["controls"].update(oracle="fail"),
)
lies(
    "receipt-run-past-max",
    "receipt_run_past_max",
    ReceiptRefused,
    lambda p: p.update(run=3, runs_spent=3),
)
lies("receipt-runs-forgotten", "receipt_run_past_max", ReceiptRefused, lambda p: p.update(run=2))
lies(
    "receipt-time-backward",
    "receipt_slots",
    ReceiptRefused,
    lambda p: p.update(finished_slot="2020-01-01T00:00:00Z"),
)
lies(
    "receipt-time-to-the-second",
    "release_slot",
    ReleaseRefused,
    lambda p: p.update(finished_slot="2036-01-01T00:00:01Z"),
)
lies(
    "receipt-after-approval-expired",
    "approval_expired",
    ApprovalRefused,
    lambda p: p.update(started_slot="2036-01-01T00:00:00Z", finished_slot="2036-01-01T00:00:00Z"),
)
lies(
    "receipt-wipe-not-verified",
    "receipt_wipe_unverified",
    ReceiptRefused,
    lambda p: p["wipe"].update(verified=False),
)
lies("receipt-other-policy", "receipt_other_policy", ReceiptRefused, false_policy)
lies("receipt-approved-by-one", "receipt_approval_order", ReceiptRefused, twice)
lies("receipt-one-nonce-for-both", "receipt_nonce_reused", ReceiptRefused, same_nonce)
lies("receipt-evidence-left-out", "receipt_evidence_missing", ReceiptRefused, one_party)
lies("receipt-party-evidence-unasked", "receipt_party_evidence", ReceiptRefused, nobody_asked)
lies("receipt-malformed-key", "signing_key", DocumentRefused, malformed_key)
lies("receipt-shared-key", "receipt_shared_key", ReceiptRefused, shared_key)


# A broker that lies to its gate, and a host that gives out other receipts.


def prove(stage: Stage, **changes: Any) -> tuple[Workload, bytes]:
    """A gate that released, and the broker's statement about it, with facts replaced."""
    workload = stage.workload(approved=True)
    live = workload.live
    release = released(stage, workload, framed(frame_with("0.5")))
    receipt = make_receipt(stage)
    facts = replace(
        receipt.facts,
        session=live.state.session,
        keys=live.state.keys,
        releases=tuple(
            replace(old, sha256=new.digest, size=len(new.sealed))
            for old, new in zip(receipt.facts.releases, release.views, strict=True)
        ),
        **changes,
    )
    return workload, build_receipt_statement(facts)


@ATTACKS.add(
    "gate-signs-other-samples", by=HOST, error=ReceiptRefused, code="receipt_other_release"
)
def gate_signs_other_samples(stage: Stage) -> Step:
    workload, statement = prove(stage, completed=500)
    return lambda: workload.live.gate.sign(statement)


@ATTACKS.add("gate-signs-twice", by=HOST, error=ReceiptRefused, code="gate_order")
def gate_signs_twice(stage: Stage) -> Step:
    workload, statement = prove(stage)
    workload.live.gate.sign(statement)
    return lambda: workload.live.gate.sign(statement)


@ATTACKS.add("gate-signs-before-release", by=HOST, error=ReceiptRefused, code="gate_order")
def gate_signs_before_release(stage: Stage) -> Step:
    workload = stage.workload(approved=True)
    statement = build_receipt_statement(make_receipt(stage).facts)
    return lambda: workload.live.gate.sign(statement)


def kept(stage: Stage, receipt: MadeReceipt) -> tuple[Any, ...]:
    """A workload whose disk holds this receipt for run 1, which both parties granted."""
    made = run_once(stage)
    made.workload.desks[made.workload.plan].archive.keep_run(1, (), receipt.honest())
    side = stage.side(MODEL_OWNER)
    return made.session.client, side.state, side.keys, stage.scene.directory.plan


@ATTACKS.add(
    "receipt-of-another-session", by=HOST, error=ReceiptRefused, code="receipt_other_session"
)
def receipt_of_another_session(stage: Stage) -> Step:
    """Genuine in all, but of a session to which this party never granted."""
    arguments = kept(stage, make_receipt(stage))
    return lambda: fetch_receipt(*arguments, run=1)


@ATTACKS.add("receipt-of-another-run", by=HOST, error=ReceiptRefused, code="receipt_other_run")
def receipt_of_another_run(stage: Stage) -> Step:
    receipt = make_receipt(stage)
    second = replace(receipt, facts=replace(receipt.facts, run=2, runs_spent=2))
    arguments = kept(stage, second)
    return lambda: fetch_receipt(*arguments, run=1)


@ATTACKS.add("view-not-the-receipts", by=HOST, error=ReleaseRefused, code="release_other_bytes")
def view_not_the_receipts(stage: Stage) -> Step:
    """A view that opens, but is not the one whose digest the receipt holds."""
    made = run_once(stage)
    facts = make_receipt(stage).facts
    other = stage.workload()
    views = released(stage, other, framed(frame_with("0.9"))).views
    made.workload.desks[made.workload.plan].archive.keep_run(1, views, b"{}")
    side = stage.side(MODEL_OWNER)
    return lambda: fetch_views(made.session.client, side.keys, stage.scene.directory, facts)
