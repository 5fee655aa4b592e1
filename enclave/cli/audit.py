"""`doubleblind audit`: check a receipt, offline, against roots and policies of one's own."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from enclave.cli.options import Moment, json_option, roots_option

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("receipt", type=_FILE)
@roots_option
@click.option("--policy", type=_FILE, help="Your attestation policy.")
@click.option("--reference-values", type=_FILE, help="Your reference values.")
@click.option(
    "--plan",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The agreed plan's directory: the receipt must be of this plan.",
)
@click.option("--now", type=Moment(), help="Judge as of this time; now otherwise.")
@json_option
def audit(
    *,
    receipt: Path,
    roots_path: Path | None,
    policy: Path | None,
    reference_values: Path | None,
    plan: Path | None,
    now: datetime | None,
    as_json: bool,
) -> int:
    """Check a receipt, offline.

    Roots and policies that are not given are looked for beside the receipt:
    roots.pem and documents/. They count there because you put them there.

    Exits 0 only if every check was made and holds; 11 if some could not be made.
    """
    from enclave.cli.audit_text import print_report
    from enclave.cli.exit_codes import ExitCode, exit_code_of
    from enclave.cli.output import Output
    from enclave.clients.auditor.audit import audit_receipt
    from enclave.clients.auditor.report import INCOMPLETE
    from enclave.clients.auditor.sources import find_sources
    from enclave.clients.party.plan_directory import read_file
    from enclave.core.receipt import MAX_RECEIPT_BYTES

    output = Output(as_json=as_json)
    sources = find_sources(
        receipt, roots=roots_path, policy=policy, reference_values=reference_values, plan=plan
    )
    report = audit_receipt(
        str(receipt),
        read_file(receipt, max_bytes=MAX_RECEIPT_BYTES),
        sources,
        now=datetime.now(UTC) if now is None else now,
    )
    print_report(output, report, sources)
    output.result(report.as_json())
    if report.first_error is not None:
        return int(exit_code_of(report.first_error))
    return int(ExitCode.INCOMPLETE if report.verdict == INCOMPLETE else ExitCode.OK)
