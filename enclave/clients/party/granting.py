"""Granting a run: written into the ledger first, sent after, never past the limit.

A session whose grants were recorded and perhaps not sent gets the very same
bytes again; any other session is the next run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from enclave.clients.party.approving import load_approval
from enclave.clients.party.artifacts import (
    ArtifactSecret,
    load_secret,
    owned_artifacts,
    refuse_other_artifact,
)
from enclave.clients.party.errors import ClientRefused
from enclave.clients.party.keys import LEDGER_FILE
from enclave.clients.party.ledger import Ledger, RecordedRun
from enclave.clients.party.session import PartySession
from enclave.clients.party.state import StateDirectory
from enclave.core.errors import GrantRefused
from enclave.core.grant import grant_key
from enclave.core.session import COLLECTING, FINISHED, REFUSED

_USED = (FINISHED, REFUSED)


@dataclass(frozen=True)
class GrantReport:
    """What one grant did. `spent` counts this party's runs of the plan, this one included."""

    run: int
    session: str
    artifacts: tuple[str, ...]
    resent: bool
    spent: int
    max_runs: int


def renew_used_session(state: StateDirectory, session: PartySession, *, now: datetime) -> bool:
    """Begin a new session where this one served its run; the caller then connects anew.

    Nothing is renewed when this party has no run left.
    Raises GrantRefused `grant_run_budget_spent`.
    """
    if session.client.get_session().state not in _USED:
        return False
    plan = session.directory.plan
    approval = load_approval(state, session.directory, now)
    with Ledger(state.path(LEDGER_FILE)) as ledger:
        ledger.refuse_spent(plan.digest, min(plan.max_runs, approval.max_runs))
    session.client.renew_session()
    return True


def prepare_session(state: StateDirectory, session: PartySession, *, now: datetime) -> None:
    """Give the enclave the approval where it has none, and refuse early what it would refuse.

    Refused here, a mistake costs no run.
    Raises ClientRefused `grant_run_begun`, `grant_upload_missing`,
    `grant_evidence_not_shown`.
    """
    approval = load_approval(state, session.directory, now)
    view = session.client.get_session()
    if view.state != COLLECTING:
        raise ClientRefused(
            "grant_run_begun",
            expected="a session that waits for grants",
            got=view.state,
            hint="wait for the run to end: `doubleblind run --watch`",
        )
    if session.role not in view.approvals:
        session.client.submit_approval(approval.envelope)
    for artifact in owned_artifacts(session.role):
        if f"upload:{artifact}" in view.missing:
            raise ClientRefused(
                "grant_upload_missing",
                expected=f"the whole {artifact} in the enclave",
                hint="`upload` first: a grant costs one of the agreed runs",
            )
    demand = session.directory.plan.party_evidence.get(session.role)
    if demand is not None and session.role not in view.party_evidence:
        raise ClientRefused(
            "grant_evidence_not_shown",
            expected=f"{demand.kind} evidence of the {session.role}",
            hint="the plan asks for it: `evidence` first",
        )


def grant_run(state: StateDirectory, session: PartySession, *, now: datetime) -> GrantReport:
    """Grant the keys of this party's artifacts to the appraised session, for one run.

    Raises GrantRefused `grant_run_budget_spent`; StateRefused; ApprovalRefused; and
    what the enclave refuses.
    """
    plan = session.directory.plan
    approval = load_approval(state, session.directory, now)
    secrets = [load_secret(state, artifact) for artifact in owned_artifacts(session.role)]
    for secret in secrets:
        refuse_other_artifact(plan, secret)
    with Ledger(state.path(LEDGER_FILE)) as ledger:
        before = len(ledger.runs(plan.digest))
        recorded = ledger.record_run(
            plan=plan.digest,
            session=session.inputs.session,
            evidence=session.result.evidence_digest,
            max_runs=min(plan.max_runs, approval.max_runs),
            now=now,
            make_grants=lambda run: _make_grants(session, secrets, run),
        )
        _send(session, ledger, recorded, now)
        spent = len(ledger.runs(plan.digest))
    return GrantReport(
        run=recorded.run,
        session=recorded.session,
        artifacts=tuple(recorded.grants),
        resent=spent == before,
        spent=spent,
        max_runs=min(plan.max_runs, approval.max_runs),
    )


def _make_grants(
    session: PartySession, secrets: list[ArtifactSecret], run: int
) -> Mapping[str, bytes]:
    return {
        secret.artifact: grant_key(
            session.result,
            inputs=session.inputs,
            evidence_digest=session.result.evidence_digest,
            role=session.role,
            artifact=secret.artifact,
            commitment=secret.commitment,
            run=run,
            key=secret.key,
            salt=secret.salt,
        )
        for secret in secrets
    }


def _send(session: PartySession, ledger: Ledger, recorded: RecordedRun, now: datetime) -> None:
    for artifact, body in recorded.grants.items():
        if artifact in recorded.sent:
            continue
        try:
            session.client.submit_grant(body)
        except GrantRefused as refusal:
            # These very bytes are there already: sent before a crash, not marked as sent.
            if refusal.code != "grant_replayed":
                raise
        ledger.mark_sent(recorded.plan, recorded.run, artifact, now)
