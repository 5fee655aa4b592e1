"""`evidence`: show the party's own hardware evidence, where the plan asks for it."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime
from pathlib import Path

from attestation.collect import SimulatedEvidenceWarning
from enclave.cli.connecting import Connection, connect, name_command, open_state
from enclave.cli.output import Output
from enclave.clients.party.approving import load_approval
from enclave.clients.party.party_evidence import open_party_attester, show_evidence


def evidence_command(role: str, connection: Connection, state_path: Path, *, as_json: bool) -> None:
    """Answer the enclave's challenge with evidence over this party's signing key."""
    output = Output(as_json=as_json)
    state, keys = open_state(state_path, role)
    with state.locked(), connect(output, keys, connection) as session:
        load_approval(state, session.directory, datetime.now(UTC))
        demand = session.directory.plan.party_evidence.get(role)
        kind = "" if demand is None else demand.kind
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SimulatedEvidenceWarning)
            attester = open_party_attester(state, kind) if kind else None
        digest = None if attester is None else show_evidence(session, attester)
    if digest is None:
        output.done(f"The plan asks no hardware evidence of the {role.replace('_', ' ')}.")
    else:
        output.done(f"The enclave accepted your {kind} evidence, sha256:{digest[:16]}…")
    output.next_step(name_command(role, "grant"))
    output.result({"kind": kind or None, "evidence": digest})
