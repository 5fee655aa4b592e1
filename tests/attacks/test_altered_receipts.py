"""Every leaf of a real receipt altered, one at a time: none of it survives an audit.

Three attackers, from weak to strong: one who stores the file; one who signs it again with
a key of his own; one who has the enclave's receipt key but no machine to quote for him.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from enclave.clients.auditor.report import FAILED, VERIFIED
from enclave.core.canonical import print_canonical
from enclave.core.errors import Refusal
from enclave.core.receipt import parse_receipt, verify_receipt_envelope
from enclave.core.signing_key import print_signing_key
from tests.attacks.receipts import (
    MadeReceipt,
    alterations,
    audit,
    make_receipt,
    print_statement,
    without_one_key,
)
from tests.attacks.scene import Stage

Altered = tuple[tuple[str, ...], bytes]


def stored(receipt: MadeReceipt) -> Iterator[Altered]:
    for path, document in alterations(json.loads(receipt.honest())):
        yield path, print_canonical(document)


def closed(receipt: MadeReceipt) -> Iterator[Altered]:
    """Keys left out and keys added, at every depth."""
    for path, document in without_one_key(json.loads(receipt.honest())):
        yield path, print_canonical(document)


def signed_by_a_stranger(receipt: MadeReceipt) -> Iterator[Altered]:
    key = ec.generate_private_key(ec.SECP256R1())
    predicate = receipt.predicate
    spki = print_signing_key(key.public_key())
    predicate["keys"]["signing_key"] = base64.b64encode(spki).decode()
    yield ("keys", "signing_key"), receipt.signed(predicate, key, quote=True)
    for path, altered in alterations(predicate):
        yield path, receipt.signed(altered, key, quote=True)


def signed_with_the_leaked_key(receipt: MadeReceipt) -> Iterator[Altered]:
    for path, altered in alterations(receipt.predicate):
        yield path, receipt.signed(altered, quote=False)


ATTACKERS = {
    "stored": (stored, 150),
    "closed": (closed, 150),
    "signed by a stranger": (signed_by_a_stranger, 130),
    "signed with the leaked key": (signed_with_the_leaked_key, 130),
}


@pytest.mark.parametrize("knows_plan", [True, False], ids=["with the plan", "without the plan"])
@pytest.mark.parametrize("attacker", ATTACKERS)
def test_no_altered_leaf_survives(stage: Stage, attacker: str, knows_plan: bool) -> None:
    alter, at_least = ATTACKERS[attacker]
    receipt = make_receipt(stage)
    assert audit(stage, receipt.honest(), knows_plan=knows_plan).verdict == VERIFIED
    survivors, count = [], 0
    for path, data in alter(receipt):
        report = audit(stage, data, knows_plan=knows_plan)
        count += 1
        if report.verdict != FAILED or report.first_error is None:
            survivors.append("/".join(path))
    assert survivors == []
    assert count >= at_least


def test_the_generator_reaches_every_field(stage: Stage) -> None:
    """Every key of the receipt, of its statement and of what is embedded in it is altered."""
    document = json.loads(make_receipt(stage).honest())
    keys = {part for path, _ in alterations(document) for part in path if not part.isdigit()}
    statement = json.loads(base64.b64decode(document["envelope"]["payload"]))
    assert set(statement["predicate"]) - {"party_evidence"} <= keys
    assert {"payloadType", "keyid", "sig", "closing", "_type", "subject", "sha256"} <= keys
    assert {"recipient_key", "tls_certificate", "max_runs", "min_tier", "result_bytes"} <= keys
    assert {"decision", "report_data", "measurement", "leaf"} <= keys


def test_the_envelope_alone_refuses_what_was_stored(stage: Stage) -> None:
    """Without any roots: all but the closing evidence is under the signature."""
    receipt = make_receipt(stage)
    survivors = []
    for path, data in stored(receipt):
        try:
            verify_receipt_envelope(parse_receipt(data))
        except Refusal:
            continue
        survivors.append(path[0])
    assert set(survivors) == {"closing"}


def test_the_honest_statement_is_what_the_core_builds(stage: Stage) -> None:
    from enclave.core.receipt import build_receipt_statement

    receipt = make_receipt(stage)
    built: Any = build_receipt_statement(receipt.facts)
    assert built == print_statement(receipt.predicate)
