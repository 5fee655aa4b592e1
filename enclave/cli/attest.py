"""`doubleblind attest`: reference values of the software installed here."""

from __future__ import annotations

from pathlib import Path

import click

from enclave.cli.options import json_option, state_option


@click.group()
def attest() -> None:
    """Reference values, and simulated devices for trials."""


@attest.command("reference-values")
@click.option("--kind", type=click.Choice(["simulated"]), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The file to write.")
@json_option
def reference_values(kind: str, out: Path, as_json: bool) -> None:
    """Write the reference values that a simulated enclave of this installation measures as."""
    from attestation.collect.source_tree import reference_values_for_simulated
    from enclave.cli.output import Output
    from enclave.clients.party.state import write_atomically
    from enclave.core.canonical import digest_bytes

    output = Output(as_json=as_json)
    document = reference_values_for_simulated()
    write_atomically(out, document, mode=0o644)
    output.done(f"Reference values of the installed sources written to {out}")
    output.facts([("sha256", digest_bytes(document))])
    output.warn("They say which sources lie on this disk, and prove nothing about any machine.")
    output.result({"kind": kind, "out": str(out), "sha256": digest_bytes(document)})


@attest.command()
@click.option("--kind", type=click.Choice(["simulated"]), required=True)
@state_option
@json_option
def device(kind: str, state_path: Path, as_json: bool) -> None:
    """Make this party's simulated device; give its root to whoever runs the workload.

    Only for plans that ask simulated evidence of a party.
    """
    import warnings

    from attestation.collect import SimulatedEvidenceWarning
    from enclave.cli.output import Output
    from enclave.clients.party.party_evidence import PUBLIC_ROOT_FILE, create_simulated_device
    from enclave.clients.party.state import StateDirectory

    output = Output(as_json=as_json)
    state = StateDirectory(state_path)
    with state.locked(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SimulatedEvidenceWarning)
        create_simulated_device(state)
    root = state.root / PUBLIC_ROOT_FILE
    output.done(f"Simulated device ready; its root is {root}")
    output.warn("A simulated device proves nothing about any machine.")
    output.result({"kind": kind, "root": str(root)})
