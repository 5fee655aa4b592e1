"""`doubleblind keygen`: a party's keys, certificate and empty run ledger."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from enclave.cli.options import json_option, state_option
from enclave.cli.output import Output

_ROLES = {
    "model-owner": "model_owner",
    "owner": "model_owner",
    "evaluator": "evaluator",
    "reviewer": "reviewer",
    "auditor": "auditor",
}


@click.command()
@click.option(
    "--role",
    type=click.Choice(tuple(_ROLES)),
    required=True,
    help="What this party is in the evaluation.",
)
@click.option("--name", required=True, help="The name plans and receipts show.")
@state_option
@json_option
def keygen(role: str, name: str, state_path: Path, as_json: bool) -> None:
    """Make a party's keys, certificate and empty run ledger."""
    from enclave.clients.party.keys import PUBLIC_PARTY_FILE, create_keys
    from enclave.clients.party.state import StateDirectory

    output = Output(as_json=as_json)
    state = StateDirectory.create(state_path)
    with state.locked():
        keys = create_keys(state, role=_ROLES[role], name=name, now=datetime.now(UTC))
    public = state.root / PUBLIC_PARTY_FILE
    output.done(f"Keys of {name} made in {state.root}")
    output.facts(
        [
            ("role", keys.party.role.replace("_", " ")),
            ("signing key", keys.party.key_id),
            ("TLS key", keys.party.tls_spki_sha256.hex()),
            ("public part", str(public)),
        ]
    )
    output.say()
    output.say("Whoever reads this directory can act in your name. Keep one copy, and back it up.")
    output.next_step(f"give {public} to the other side; it holds nothing secret")
    output.result(
        {
            "role": keys.party.role,
            "name": keys.party.name,
            "state": str(state.root),
            "party": str(public),
            "signing_key_id": keys.party.key_id,
            "tls_spki_sha256": keys.party.tls_spki_sha256.hex(),
        }
    )
