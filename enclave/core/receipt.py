"""Receipt: what an enclave signs about a run, and the quote that closes it.

Format: docs/spec/receipt.md.  Order of use in the enclave: `build_receipt_statement`,
`sign_receipt`, evidence over `closing_inputs`, `close_receipt`.  Order of use
at a reader: `parse_receipt`, `verify_receipt_envelope`, then the evidence, by
the reader's own roots and policy, against `binding_inputs` and `closing_inputs`.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from attestation.types import MAX_BUNDLE_BYTES
from enclave.core.approval import Approvals
from enclave.core.binding import RECEIPT_LABEL, BindingInputs
from enclave.core.canonical import digest_bytes, parse_canonical, print_canonical
from enclave.core.dsse import (
    Envelope,
    read_envelope,
    sign_envelope,
    verify_envelope,
)
from enclave.core.errors import DocumentRefused, ReceiptRefused
from enclave.core.fields import Fields
from enclave.core.receipt_rules import refuse_inconsistent_facts, verify_receipt_approvals
from enclave.core.run_facts import RunFacts
from enclave.core.run_facts_reading import read_run_facts
from enclave.core.signing_key import print_signing_key
from enclave.core.statement import Statement, read_statement
from enclave.core.vocabulary import ENCLAVE_RUN_TYPE

MAX_RECEIPT_BYTES = 32 * 1024 * 1024
_MAX_PAYLOAD = 20 * 1024 * 1024
_SUBJECTS = ("plan", "run")


@dataclass(frozen=True)
class Receipt:
    """A receipt that parsed; nothing in it is believed yet.

    closing_evidence: an evidence bundle over `closing_inputs`.
    """

    envelope: Envelope
    facts: RunFacts
    closing_evidence: bytes

    @property
    def closing_inputs(self) -> BindingInputs:
        """What the closing evidence has to bind."""
        return closing_inputs(self.facts, self.envelope.payload)

    def to_bytes(self) -> bytes:
        """The receipt file as RFC 8785 bytes."""
        return close_receipt(self.envelope, self.closing_evidence)


@dataclass(frozen=True)
class VerifiedReceipt:
    """A receipt whose signature, subjects, rules and approvals hold.

    Who holds the signing key is what its evidence proves, not this type.
    """

    receipt: Receipt
    approvals: Approvals

    @property
    def facts(self) -> RunFacts:
        """What the receipt states."""
        return self.receipt.facts


def _subject(facts: RunFacts) -> tuple[tuple[str, str], ...]:
    run = digest_bytes(print_canonical(facts.to_json()))
    return (("plan", facts.plan.digest), ("run", run))


def build_receipt_statement(facts: RunFacts) -> bytes:
    """The in-toto Statement about one run: the payload to sign.

    Facts that contradict each other are refused here too, so that no enclave
    signs what no reader accepts.
    """
    refuse_inconsistent_facts(facts)
    verify_receipt_approvals(facts)
    return Statement(_subject(facts), ENCLAVE_RUN_TYPE, facts.to_json()).to_bytes()


def sign_receipt(statement: bytes, signing_key: ec.EllipticCurvePrivateKey) -> Envelope:
    """Sign a statement with the session's receipt key."""
    facts = _read_facts(statement)
    if facts.keys.signing_key != print_signing_key(signing_key.public_key()):
        raise ReceiptRefused("receipt_foreign_key", expected="the session's receipt key")
    return sign_envelope(statement, signing_key)


def closing_nonce(statement: bytes) -> bytes:
    """The 32-byte nonce of the closing evidence: SHA-256 of the signed statement."""
    return hashlib.sha256(statement).digest()


def closing_inputs(facts: RunFacts, statement: bytes) -> BindingInputs:
    """What the closing evidence binds: the session, and the statement by its digest."""
    return facts.binding_inputs(RECEIPT_LABEL, closing_nonce(statement))


def close_receipt(envelope: Envelope, closing_evidence: bytes) -> bytes:
    """The receipt file: envelope and closing evidence, RFC 8785 bytes."""
    document: dict[str, Any] = {
        "envelope": envelope.to_json(),
        "closing": {"evidence": base64.b64encode(closing_evidence).decode()},
    }
    return print_canonical(document)


def _read_facts(payload: bytes) -> RunFacts:
    statement = read_statement(payload, ENCLAVE_RUN_TYPE, _SUBJECTS, max_bytes=_MAX_PAYLOAD)
    facts = read_run_facts(statement.predicate)
    if statement.subject != _subject(facts):
        raise ReceiptRefused("receipt_subject", expected="digests of this plan and this run")
    return facts


def parse_receipt(data: bytes) -> Receipt:
    """Parse a receipt file (canonical bytes, closed)."""
    fields = Fields(parse_canonical(data, max_bytes=MAX_RECEIPT_BYTES), "receipt")
    envelope = read_envelope(fields.object("envelope"), max_payload=_MAX_PAYLOAD)
    closing = fields.object("closing")
    evidence = closing.base64("evidence", max_size=MAX_BUNDLE_BYTES)
    closing.done()
    fields.done()
    # The key is inside the payload, so the payload is read before it is verified:
    # `Receipt` is a parsed type, `VerifiedReceipt` the believed one.
    facts = _read_facts(envelope.payload)
    return Receipt(envelope, facts, evidence)


def verify_receipt_envelope(receipt: Receipt) -> VerifiedReceipt:
    """Verify the signature by the key the receipt names, its rules and its approvals."""
    try:
        verified = verify_envelope(receipt.envelope, receipt.facts.keys.signing_key)
    except DocumentRefused:
        raise ReceiptRefused(
            "receipt_signature", expected="a signature by the receipt key it names"
        ) from None
    if _read_facts(verified.payload) != receipt.facts:
        raise ReceiptRefused("receipt_subject", expected="the facts that were signed")
    refuse_inconsistent_facts(receipt.facts)
    return VerifiedReceipt(receipt, verify_receipt_approvals(receipt.facts))
