"""`upload`: send the sealed artifacts of one party, resuming where the enclave stands."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from enclave.cli.connecting import Connection, connect, evidence_summary, name_command, open_state
from enclave.cli.output import Output
from enclave.clients.channel.upload import upload_artifact
from enclave.clients.party.approving import load_approval
from enclave.clients.party.artifacts import (
    load_secret,
    owned_artifacts,
    refuse_other_artifact,
    sealed_folder,
)
from enclave.core.plan_explain import print_size


def upload_command(role: str, connection: Connection, state_path: Path, *, as_json: bool) -> None:
    """Submit the approval where it is missing, then upload what is missing."""
    output = Output(as_json=as_json)
    state, keys = open_state(state_path, role)
    reports = {}
    with state.locked(), connect(output, keys, connection) as session:
        approval = load_approval(state, session.directory, datetime.now(UTC))
        if role not in session.client.get_session().approvals:
            session.client.submit_approval(approval.envelope)
        for artifact in owned_artifacts(role):
            refuse_other_artifact(session.directory.plan, load_secret(state, artifact))
            with output.progress(f"Uploading {artifact}") as advance:
                report = upload_artifact(
                    session.client,
                    session.directory.plan,
                    artifact,
                    sealed_folder(state, artifact),
                    advance,
                )
            reports[artifact] = {
                "sent_segments": report.sent_segments,
                "skipped_segments": report.skipped_segments,
                "bytes": report.bytes,
            }
            output.done(
                f"The {artifact} is there: {report.sent_segments} segments sent "
                f"({print_size(report.bytes)}), {report.skipped_segments} were there already"
            )
        evidence = evidence_summary(session)
    output.next_step(name_command(role, "grant"))
    output.result({"uploads": reports, "evidence": evidence})
