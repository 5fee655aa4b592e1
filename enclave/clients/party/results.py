"""Fetching what a run gave to this party: the receipt first, then each of its views.

Nothing here needs an attested channel: the receipt proves itself, and a view
opens only with this party's key, under this plan, session and run.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from attestation.parse.bundle import parse_evidence_bundle
from enclave.clients.channel.client import EnclaveClient
from enclave.clients.party.errors import ClientRefused
from enclave.clients.party.keys import LEDGER_FILE, PartyKeys
from enclave.clients.party.ledger import Ledger
from enclave.clients.party.plan_directory import DOCUMENTS_FOLDER, PLAN_FILE, PlanDirectory
from enclave.clients.party.state import StateDirectory
from enclave.core.canonical import digest_bytes
from enclave.core.errors import ReceiptRefused, ReleaseRefused
from enclave.core.plan import Plan
from enclave.core.receipt import parse_receipt
from enclave.core.release import ReleasedView, open_view
from enclave.core.result_policy import parse_result_policy
from enclave.core.run_facts import RunFacts


@dataclass(frozen=True)
class FetchedReceipt:
    """A receipt of this plan and run, about the session this party granted to. Not audited."""

    data: bytes
    facts: RunFacts


def receipt_folder(plan: str, run: int) -> str:
    """Where a receipt and what it is audited by lie, inside the state directory."""
    return f"receipts/{plan}/run-{run}"


def receipt_path(plan: str, run: int) -> str:
    """Where the receipt itself lies, inside the state directory."""
    return f"{receipt_folder(plan, run)}/receipt.json"


def release_folder(plan: str, run: int) -> str:
    """Where the views of a run lie, inside the state directory."""
    return f"releases/{plan}/run-{run}"


def fetch_receipt(
    client: EnclaveClient, state: StateDirectory, keys: PartyKeys, plan: Plan, run: int | None
) -> FetchedReceipt:
    """Fetch the receipt of a run, the last one if None.

    Raises ClientRefused `result_no_run`; ReceiptRefused `receipt_other_run`,
    `receipt_other_session`.
    """
    number = client.get_session().last_run if run is None else run
    if number < 1:
        raise ClientRefused(
            "result_no_run", expected="a run that ended", hint="start one: `doubleblind run`"
        )
    data = client.get_receipt(number)
    facts = parse_receipt(data).facts
    if (facts.plan.digest, facts.run) != (plan.digest, number):
        raise ReceiptRefused(
            "receipt_other_run", expected=f"run {number} of this plan", got=f"run {facts.run}"
        )
    _refuse_other_session(state, keys, facts)
    return FetchedReceipt(data, facts)


def _refuse_other_session(state: StateDirectory, keys: PartyKeys, facts: RunFacts) -> None:
    """The receipt must hold the very evidence on which this party granted the run."""
    shown = {
        parse_evidence_bundle(entry.evidence).digest
        for entry in facts.evidence
        if entry.label == keys.party.role
    }
    with Ledger(state.path(LEDGER_FILE)) as ledger:
        granted = {
            run.evidence for run in ledger.runs(facts.plan.digest) if run.session == facts.session
        }
    if not granted or not granted <= shown:
        raise ReceiptRefused(
            "receipt_other_session",
            expected="the session and evidence that this party granted to",
            got=f"session {facts.session[:8]}…",
            hint="do not believe this receipt: it is about a session you did not appraise",
        )


def fetch_views(
    client: EnclaveClient, keys: PartyKeys, directory: PlanDirectory, facts: RunFacts
) -> Mapping[str, tuple[bytes, ReleasedView]]:
    """Fetch and open every view of this party; the sealed bytes must be those of the receipt.

    Raises ReleaseRefused `release_other_bytes`, and what `open_view` raises.
    """
    policy = parse_result_policy(directory.result_policy)
    role = keys.party.role
    opened = {}
    for view, roles in directory.plan.views.items():
        if role not in roles:
            continue
        sealed = client.get_release(facts.run, view)
        stated = next((r.sha256 for r in facts.releases if (r.view, r.role) == (view, role)), "")
        if not hmac.compare_digest(stated, digest_bytes(sealed)):
            raise ReleaseRefused(
                "release_other_bytes", expected=f"sha256:{stated}", got=digest_bytes(sealed)
            )
        released = open_view(
            sealed,
            keys.recipient_key,
            plan=directory.plan,
            policy=policy,
            session=facts.session,
            run=facts.run,
            view=view,
            role=role,
        )
        opened[view] = (sealed, released)
    return opened


def keep_receipt(
    state: StateDirectory, directory: PlanDirectory, receipt: FetchedReceipt, roots: bytes | None
) -> None:
    """Keep an audited receipt with the documents and this party's own roots beside it."""
    folder = receipt_folder(directory.plan.digest, receipt.facts.run)
    for digest, data in directory.documents.items():
        state.write(f"{folder}/{DOCUMENTS_FOLDER}/{digest}.json", data)
    state.write(f"{folder}/{PLAN_FILE}", directory.plan.to_bytes())
    if roots is not None:
        state.write(f"{folder}/roots.pem", roots)
    state.write(receipt_path(directory.plan.digest, receipt.facts.run), receipt.data)


def keep_views(
    state: StateDirectory,
    directory: PlanDirectory,
    run: int,
    views: Mapping[str, tuple[bytes, ReleasedView]],
) -> None:
    """Keep each view, sealed and opened."""
    size = parse_result_policy(directory.result_policy).release_bytes
    folder = release_folder(directory.plan.digest, run)
    for view, (sealed, released) in views.items():
        state.write(f"{folder}/{view}.sealed", sealed)
        state.write(f"{folder}/{view}.json", released.to_bytes(size))
