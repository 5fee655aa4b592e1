"""`doubleblind selftest`: try to break this machine's isolation, and say what held."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from enclave.cli.options import json_option


@click.command()
@json_option
def selftest(as_json: bool) -> int:
    """Run every probe inside real compartments and print what each met.

    Exits 0 only if no attempt succeeded. Needs no keys and opens no secret.
    """
    from enclave.workload.launcher.process import launch_workload

    with tempfile.TemporaryDirectory(prefix="doubleblind-selftest-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        (root / "run").mkdir(mode=0o755)
        command = [sys.executable, "-m", "enclave.cli.selftest", "json" if as_json else "text"]
        environment = {
            name: os.environ[name] for name in ("TERM", "NO_COLOR", "COLUMNS") if name in os.environ
        }
        return _in_child(
            lambda: launch_workload(
                command,
                run_directory=str(root / "run"),
                state_directory=str(root / "state"),
                environment=environment,
            )
        )


def _in_child(launch: Callable[[], int]) -> int:
    """The launcher keeps its private mounts for life: give it a process of its own."""
    from enclave.cli.failures import report_failure

    child = os.fork()
    if child == 0:
        try:
            os._exit(launch())
        except BaseException as error:  # noqa: BLE001 - a forked child must not return
            os._exit(int(report_failure(error, as_json="--json" in sys.argv)))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _inside(form: str) -> int:
    """The broker's part: started by the launcher, it alone may ask for compartments."""
    from enclave.cli.exit_codes import ExitCode
    from enclave.cli.failures import report_failure
    from enclave.cli.output import Output
    from enclave.core.errors import Refusal
    from enclave.workload.launcher.client import LauncherClient
    from enclave.workload.launcher.selftest import run_selftest

    output = Output(as_json=form == "json")
    try:
        tested = run_selftest(LauncherClient.from_environment())
    except Refusal as refusal:
        return int(report_failure(refusal, as_json=output.as_json))
    output.table(
        ("probe", "compartment", "attempt", "outcome"),
        [(probe.id, probe.kind, probe.name, probe.outcome) for probe in tested.probes],
    )
    output.heading(f"Tier {tested.tier}: {tested.refused} of {tested.tried} attempts stopped")
    if tested.missing:
        output.say(f"  for the next tier it lacks: {', '.join(tested.missing)}")
    output.say(f"  profile digest {tested.profile_digest}")
    output.result(
        {
            "tier": tested.tier,
            "missing": list(tested.missing),
            "profile_digest": tested.profile_digest,
            "probes": [probe.as_json() for probe in tested.probes],
        }
    )
    return int(ExitCode.OK)


if __name__ == "__main__":
    sys.exit(_inside(sys.argv[1]))
