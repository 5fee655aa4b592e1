"""`result`: fetch, audit, open, show and keep what a run gave to this party."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attestation.types import CheckState
from enclave.cli.audit_text import print_report
from enclave.cli.connecting import Connection, open_state, read_optional, warn_if_simulated
from enclave.cli.output import Output
from enclave.clients.auditor.audit import audit_receipt
from enclave.clients.auditor.report import VERIFIED, AuditReport
from enclave.clients.auditor.sources import find_sources
from enclave.clients.channel.bootstrap import fetch_server_certificate
from enclave.clients.party.errors import ClientRefused
from enclave.clients.party.plan_directory import PlanDirectory, read_plan_directory
from enclave.clients.party.results import (
    fetch_receipt,
    fetch_views,
    keep_receipt,
    keep_views,
    receipt_path,
)
from enclave.clients.party.session import (
    BOOTSTRAP_SECONDS,
    open_channel,
    refuse_foreign_plan,
    refuse_other_policy,
)
from enclave.core.release import ReleasedView
from enclave.core.result_policy import parse_result_policy


def result_command(
    role: str, connection: Connection, state_path: Path, run: int | None, *, as_json: bool
) -> None:
    """Show this party's numbers, but only under a receipt whose every check was verified."""
    output = Output(as_json=as_json)
    state, keys = open_state(state_path, role)
    directory = read_plan_directory(connection.plan_path)
    refuse_foreign_plan(directory, keys.party)
    refuse_other_policy(directory, read_optional(connection.policy_path))
    warn_if_simulated(output, directory)
    certificate = fetch_server_certificate(connection.endpoint, BOOTSTRAP_SECONDS)
    with (
        state.locked(),
        open_channel(keys, directory, connection.endpoint, certificate) as client,
    ):
        receipt = fetch_receipt(client, state, keys, directory.plan, run)
        roots = read_optional(connection.roots_path)
        path = state.root / receipt_path(directory.plan.digest, receipt.facts.run)
        report = _audit(output, path, receipt.data, connection)
        views = fetch_views(client, keys, directory, receipt.facts)
        keep_receipt(state, directory, receipt, roots)
        keep_views(state, directory, receipt.facts.run, views)
    released = [view for _, view in views.values()]
    output.heading(f"Run {receipt.facts.run} of {directory.plan.title}")
    _print_views(output, directory, released)
    output.say()
    _print_audit(output, report, path)
    output.result(
        {
            "plan": directory.plan.digest,
            "run": receipt.facts.run,
            "session": receipt.facts.session,
            "views": {view.view: {m.id: m.value for m in view.metrics} for view in released},
            "baselines": _baselines(directory),
            "samples": {
                "completed": receipt.facts.completed,
                "failed": receipt.facts.failed,
            },
            "receipt": str(path),
            "audit": _summary(report),
        }
    )


def _audit(output: Output, path: Path, data: bytes, connection: Connection) -> AuditReport:
    """Audit before anything is kept or shown: the host can make every byte but the evidence.

    A check that was not made proves no number, so it is refused here like one that failed.
    """
    sources = find_sources(path, roots=connection.roots_path, plan=connection.plan_path)
    report = audit_receipt(str(path), data, sources, now=datetime.now(UTC))
    if report.verdict != VERIFIED:
        print_report(output, report, sources)
    if report.first_error is not None:
        raise report.first_error
    if report.verdict != VERIFIED:
        raise ClientRefused(
            "result_not_proven",
            expected="a receipt whose every check was made",
            got=f"{sum(c.state is not CheckState.VERIFIED for c in report.checks)} not checked",
            hint="give --roots FILE: without your roots anybody could have written these numbers",
        )
    return report


def _baselines(directory: PlanDirectory) -> dict[str, str]:
    policy = parse_result_policy(directory.result_policy)
    return {entry.metric: entry.baseline for entry in policy.baselines}


def _print_views(
    output: Output, directory: PlanDirectory, released: Iterable[ReleasedView]
) -> None:
    baselines = _baselines(directory)
    for view in released:
        values = {metric.id: metric.value for metric in view.metrics}
        rows = [
            (metric, value, values.get(baselines.get(metric, ""), "none"))
            for metric, value in values.items()
            if metric not in baselines.values()
        ]
        output.say(f"View {view.view}, released in the slot of {view.slot}", style="dim")
        output.table(("metric", "value", "naive baseline"), rows)


def _print_audit(output: Output, report: AuditReport, path: Path) -> None:
    output.done(f"The receipt holds: all {len(report.checks)} checks verified.")
    output.facts([("receipt", str(path))])
    output.next_step(f"doubleblind audit {path}")


def _summary(report: AuditReport) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for check in report.checks:
        counts[str(check.state)] = counts.get(str(check.state), 0) + 1
    return {"verdict": report.verdict, "checks": counts, "not_proven": list(report.not_proven)}
