"""`grant`: one run for the attested enclave, recorded before it is sent."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from enclave.cli.connecting import Connection, connect, evidence_summary, open_state
from enclave.cli.output import Output
from enclave.clients.party.granting import (
    GrantReport,
    grant_run,
    prepare_session,
    renew_used_session,
)
from enclave.clients.party.keys import PartyKeys
from enclave.clients.party.session import PartySession
from enclave.clients.party.state import StateDirectory


def grant_command(role: str, connection: Connection, state_path: Path, *, as_json: bool) -> None:
    """Grant the keys of the party's artifacts for one run."""
    output = Output(as_json=as_json)
    state, keys = open_state(state_path, role)
    with state.locked():
        report, evidence = _grant(output, state, keys, connection)
    names = " and ".join(report.artifacts)
    again = " again, the same bytes as before" if report.resent else ""
    output.done(f"Granted {names} to session {report.session[:8]}… for run {report.run}{again}")
    output.facts([("runs granted", f"{report.spent} of {report.max_runs}")])
    output.next_step("doubleblind run, once both parties have granted")
    output.result(
        {
            "run": report.run,
            "session": report.session,
            "artifacts": list(report.artifacts),
            "resent": report.resent,
            "runs_granted": report.spent,
            "max_runs": report.max_runs,
            "evidence": evidence,
        }
    )


def _grant(
    output: Output, state: StateDirectory, keys: PartyKeys, connection: Connection
) -> tuple[GrantReport, dict[str, object]]:
    with connect(output, keys, connection) as session:
        if not renew_used_session(state, session, now=datetime.now(UTC)):
            return _grant_in(state, session)
    output.done("The last run's session is closed, a new one has begun")
    with connect(output, keys, connection, warned=True) as session:
        return _grant_in(state, session)


def _grant_in(
    state: StateDirectory, session: PartySession
) -> tuple[GrantReport, dict[str, object]]:
    prepare_session(state, session, now=datetime.now(UTC))
    return grant_run(state, session, now=datetime.now(UTC)), evidence_summary(session)
