"""An audit report as text: the table of checks, what judged them, what is not proven."""

from __future__ import annotations

from collections import Counter

from rich.text import Text

from attestation.errors import CheckState
from enclave.cli.output import Output
from enclave.clients.auditor.audit import describe_missing
from enclave.clients.auditor.evidence_checks import SIMULATED_WARNING
from enclave.clients.auditor.report import FAILED, NO_EVIDENCE, NO_PLAN, VERIFIED, AuditReport
from enclave.clients.auditor.sources import BESIDE, AuditSources
from enclave.core.times import print_time

_MARKS = {
    CheckState.VERIFIED: Text("✓ verified", style="green"),
    CheckState.FAILED: Text("✗ failed", style="red bold"),
    CheckState.NOT_CHECKED: Text("– not checked", style="yellow"),
}

_LOUD = (SIMULATED_WARNING, NO_EVIDENCE, NO_PLAN)


def print_report(output: Output, report: AuditReport, sources: AuditSources) -> None:
    """Print the report for people."""
    output.heading(f"Audit of {report.receipt}")
    output.facts(
        [
            ("plan", report.plan or "unreadable"),
            ("run", "unreadable" if report.run is None else str(report.run)),
            ("as of", print_time(report.now)),
            ("roots", report.origins["roots"]),
            ("policy", report.origins["policy"]),
        ]
    )
    if BESIDE in report.origins.values():
        output.warn(
            "Roots and policies beside the receipt are trusted only because you put them there. "
            "Bring your own with --roots, --policy and --reference-values."
        )
    output.say()
    output.table(
        ("stage", "check", "state", "what was found"),
        [(c.stage, c.name, _MARKS[c.state], c.detail) for c in report.checks],
    )
    output.heading("Not proven by any of this")
    for line in report.not_proven:
        output.bullet(line, style="red bold" if line in _LOUD else "")
    counts = Counter(check.state for check in report.checks)
    output.say()
    summary = (
        f"{counts[CheckState.VERIFIED]} verified, {counts[CheckState.FAILED]} failed, "
        f"{counts[CheckState.NOT_CHECKED]} not checked"
    )
    if report.verdict == VERIFIED:
        output.done(f"The receipt holds: {summary}.")
    elif report.verdict == FAILED:
        output.failed(f"The receipt does not hold: {summary}.")
    else:
        output.warn(f"No fault found, but not everything was checked: {summary}.")
        missing = describe_missing(sources)
        if missing:
            output.next_step(f"audit again with {', '.join(missing)}")
