"""`doubleblind serve`: run the workload for agreed plans."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from pathlib import Path

import click

from enclave.cli.options import json_option

_ROOTS = "party_roots.pem"


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
    lock = _lock(state_path / "lock")
    run_directory = state_path / "run"
    run_directory.mkdir(mode=0o755, exist_ok=True)
    state = state_path / "broker"
    inputs = _copy_inputs(state_path / "inputs", plans, party_roots)
    command = [sys.executable, "-m", "enclave.workload.broker", "--state", str(state.absolute())]
    for number in range(len(plans)):
        command += ["--plan", str(inputs / f"plan-{number}")]
    command += ["--listen", listen, "--attester", attester]
    command += ["--party-roots", str(inputs / _ROOTS)] if party_roots is not None else []
    command += ["--production"] if production else []
    command += ["--json"] if as_json else []
    try:
        return launch_workload(
            command,
            run_directory=str(run_directory.absolute()),
            state_directory=str(state.absolute()),
            readable=[str(inputs)],
            insecure_show_stderr=insecure_show_stderr,
        )
    finally:
        os.close(lock)


def _lock(path: Path) -> int:
    """One workload a directory: two would count the same runs. Held until this process ends."""
    from enclave.core.errors import SessionRefused

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise SessionRefused(
            "workload_running",
            expected="one workload in this directory",
            got="another one that runs",
            hint="stop it, or choose another --state",
        ) from None
    return descriptor


def _copy_inputs(folder: Path, plans: tuple[Path, ...], party_roots: Path | None) -> Path:
    """What the broker has to read, readable for its user whatever the originals' modes.

    Nothing here is secret: plans, the documents they pin and public certificates.
    """
    from enclave.clients.party.plan_directory import read_plan_directory, write_plan_directory

    folder = folder.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o755)
    for number, plan in enumerate(plans):
        write_plan_directory(folder / f"plan-{number}", read_plan_directory(plan))
    if party_roots is not None:
        (folder / _ROOTS).write_bytes(party_roots.read_bytes())
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder
