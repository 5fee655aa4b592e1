"""`doubleblind party`: what the other side gets of this one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from enclave.cli.options import json_option, state_option
from enclave.cli.output import Output


@click.group()
def party() -> None:
    """Show what the other side gets."""


@party.command()
@state_option
@click.option("--out", type=click.Path(path_type=Path), help="Write the document to this file.")
@json_option
def show(state_path: Path, out: Path | None, as_json: bool) -> None:
    """Print this party's public document."""
    from enclave.clients.party.keys import load_party
    from enclave.clients.party.state import StateDirectory, write_atomically

    output = Output(as_json=as_json)
    document = load_party(StateDirectory(state_path))
    if out is not None:
        write_atomically(out, document.to_bytes(), mode=0o644)
    output.heading(f"{document.name}, {document.role.replace('_', ' ')}")
    output.facts(
        [
            ("signing key", document.key_id),
            ("TLS key", document.tls_spki_sha256.hex()),
            ("recipient key", f"{len(document.recipient_key)} bytes, MLKEM768-X25519"),
        ]
    )
    if out is None and not as_json:
        sys.stdout.write("\n" + json.dumps(document.to_json(), indent=2) + "\n")
    output.result({"party": document.to_json(), "out": None if out is None else str(out)})
