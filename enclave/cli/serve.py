"""`doubleblind serve`: run the workload for agreed plans."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from enclave.cli.options import json_option


@click.command()
@click.option(
    "--plan",
    "plans",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    required=True,
    help="A plan's directory; repeat it for several plans.",
)
@click.option(
    "--state",
    "state_path",
    type=click.Path(path_type=Path),
    required=True,
    help="The workload's directory: ciphertext, receipts, nothing secret.",
)
@click.option(
    "--listen", default="127.0.0.1:8443", show_default=True, help="Address; port 0 picks one."
)
@click.option(
    "--attester",
    type=click.Choice(["simulated", "sev-snp", "tdx"]),
    default="simulated",
    show_default=True,
    help="Who vouches for this machine.",
)
@click.option(
    "--party-roots",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Trust roots (PEM) for the parties' own evidence.",
)
@click.option("--production", is_flag=True, help="Refuse everything simulated; no reflection.")
@click.option(
    "--insecure-show-stderr",
    is_flag=True,
    help="Let compartments write to stderr: an unmetered way out, for developers.",
)
@json_option
def serve(  # noqa: PLR0917 - one parameter an option
    plans: tuple[Path, ...],
    state_path: Path,
    listen: str,
    attester: str,
    party_roots: Path | None,
    production: bool,
    insecure_show_stderr: bool,
    as_json: bool,
) -> int:
    """Run the workload until it is stopped.

    Prints its address once every plan has a session; as root each compartment
    has its own user.
    """
    from enclave.cli.output import Output
    from enclave.workload.launcher.process import launch_workload

    if attester == "simulated":
        Output(as_json=as_json).alarm(
            "SIMULATED ATTESTATION",
            "This workload proves nothing about the machine it runs on. For trials only.",
        )
    state_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    run_directory = state_path / "run"
    run_directory.mkdir(mode=0o755, exist_ok=True)
    state = state_path / "broker"
    command = [sys.executable, "-m", "enclave.workload.broker", "--state", str(state.absolute())]
    for folder in plans:
        command += ["--plan", str(folder.absolute())]
    command += ["--listen", listen, "--attester", attester]
    readable = [str(folder.absolute()) for folder in plans]
    if party_roots is not None:
        command += ["--party-roots", str(party_roots.absolute())]
        readable.append(str(party_roots.absolute()))
    command += ["--production"] if production else []
    command += ["--json"] if as_json else []
    return launch_workload(
        command,
        run_directory=str(run_directory.absolute()),
        state_directory=str(state.absolute()),
        readable=readable,
        insecure_show_stderr=insecure_show_stderr,
    )
