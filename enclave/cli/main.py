"""The command `doubleblind`: the list of commands, and how every error ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from enclave.cli.exit_codes import MEANINGS, ExitCode
from enclave.cli.lazy import LazyCommand, LazyGroup

_SECTIONS = (
    (
        "Prepare",
        {
            "keygen": LazyCommand("enclave.cli.keygen:keygen", "Make a party's keys and state."),
            "party": LazyCommand("enclave.cli.party:party", "Show what the other side gets."),
            "plan": LazyCommand("enclave.cli.plan:plan", "Write, read and compare plans."),
            "attest": LazyCommand(
                "enclave.cli.attest:attest", "Reference values, simulated devices."
            ),
        },
    ),
    (
        "Take part",
        {
            "owner": LazyCommand("enclave.cli.owner:owner", "What the model owner does."),
            "evaluator": LazyCommand("enclave.cli.evaluator:evaluator", "What the evaluator does."),
            "run": LazyCommand("enclave.cli.run:run", "Start the agreed run and watch it."),
        },
    ),
    (
        "Check",
        {
            "audit": LazyCommand("enclave.cli.audit:audit", "Check a receipt, offline."),
        },
    ),
    (
        "Host",
        {
            "serve": LazyCommand("enclave.cli.serve:serve", "Run the workload."),
            "demo": LazyCommand("enclave.cli.demo:demo", "A whole evaluation on this machine."),
            "selftest": LazyCommand(
                "enclave.cli.selftest:selftest", "Check this machine's isolation."
            ),
        },
    ),
)

_EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code:>2}  {MEANINGS[code]}" for code in ExitCode)


@click.group(
    cls=LazyGroup,
    sections=_SECTIONS,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="double-blind-enclave", prog_name="doubleblind")
def cli() -> None:
    """Run one evaluation for two parties who do not trust each other.

    The model owner keeps the weights secret, the evaluator keeps the prompts
    secret, and both get exactly the result they agreed on, with proof.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `doubleblind` and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        outcome = cli.main(args=given, prog_name="doubleblind", standalone_mode=False)
        return int(outcome) if isinstance(outcome, int) else ExitCode.OK
    except BaseException as error:
        if os.environ.get("DOUBLEBLIND_DEBUG") == "1":
            raise
        from enclave.cli.failures import report_failure

        return report_failure(error, as_json="--json" in given)


if __name__ == "__main__":
    sys.exit(main())
