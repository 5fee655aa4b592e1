"""Plans and their differences as text."""

from __future__ import annotations

from collections.abc import Sequence

from enclave.cli.output import Output
from enclave.clients.party.plan_directory import PlanDirectory
from enclave.core.plan_diff import diff_plans
from enclave.core.plan_explain import explain_plan


def explain(directory: PlanDirectory) -> Sequence[tuple[str, tuple[str, ...]]]:
    """The sections of a plan in plain language."""
    sections = explain_plan(directory.plan, directory.documents)
    return [(section.title, section.lines) for section in sections]


def print_plan(output: Output, directory: PlanDirectory) -> None:
    """Print the sections, and last the digest that an approval signs."""
    for title, lines in explain(directory):
        output.heading(title)
        for line in lines:
            output.bullet(line)
    output.heading("Digest")
    output.bullet(directory.plan.digest)


def print_changes(
    output: Output, before: PlanDirectory, after: PlanDirectory
) -> list[dict[str, str]]:
    """Print what changed and return it for `--json`."""
    changes = diff_plans(before.plan, after.plan)
    if not changes:
        output.done("The two plans are the same, byte for byte.")
    else:
        output.say(f"{len(changes)} differences; approvals of the old plan are void for the new.")
    for change in changes:
        output.heading(change.path)
        output.facts([("was", change.old), ("is", change.new), ("so", change.meaning)])
    return [{"path": c.path, "old": c.old, "new": c.new, "meaning": c.meaning} for c in changes]
