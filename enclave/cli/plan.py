"""`doubleblind plan`: write, read and compare plans."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from enclave.cli.options import Moment, json_option

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_ANY = click.Path(exists=True, path_type=Path)


@click.group()
def plan() -> None:
    """Write, read and compare plans."""


@plan.command()
@click.option(
    "--owner",
    "owner_path",
    type=_ANY,
    required=True,
    help="The model owner's public folder (or party.json, with --model).",
)
@click.option(
    "--evaluator",
    "evaluator_path",
    type=_ANY,
    required=True,
    help="The evaluator's public folder (or party.json, with --suite and --bundle).",
)
@click.option("--model", "model_card", type=_FILE, help="The model's card.")
@click.option("--suite", "suite_card", type=_FILE, help="The suite's card.")
@click.option("--bundle", "bundle_card", type=_FILE, help="The eval bundle's card.")
@click.option(
    "--party", "other_parties", type=_FILE, multiple=True, help="A reviewer or auditor to name."
)
@click.option("--attestation-policy", type=_FILE, required=True, help="Policy for the enclave.")
@click.option("--reference-values", type=_FILE, required=True, help="What it must measure as.")
@click.option("--result-policy", type=_FILE, required=True, help="What may come out.")
@click.option("--title", default="Double-blind evaluation", show_default=True)
@click.option("--max-runs", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option(
    "--not-after", type=Moment(), default="7d", show_default=True, help="A time, or 12h, 7d."
)
@click.option("--min-tier", type=click.Choice(["T1", "T2", "T3"]), default="T2", show_default=True)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a default, such as engine.seed=7 or limits.wall_seconds=600.",
)
@click.option(
    "--view",
    "views",
    multiple=True,
    metavar="VIEW=ROLE,ROLE",
    help="Who gets a view; both parties otherwise.",
)
@click.option(
    "--may-publish",
    multiple=True,
    type=click.Choice(["model_owner", "evaluator", "none"]),
    help="Who may publish; both parties otherwise.",
)
@click.option("--publish-after", type=Moment(), help="From when; from the release otherwise.")
@click.option(
    "--party-evidence",
    multiple=True,
    nargs=4,
    metavar="ROLE KIND POLICY REFERENCE",
    help="Hardware evidence a party must show.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The new folder.")
@json_option
def new(not_after: datetime, out: Path, as_json: bool, **options: Any) -> None:
    """Write a plan from what both sides gave.

    Both parties must get the folder whole: plan.json and documents/.
    """
    from enclave.cli.output import Output
    from enclave.cli.plan_new import draft_plan
    from enclave.cli.plan_text import print_plan
    from enclave.clients.party.plan_directory import write_plan_directory
    from enclave.clients.party.plan_draft import write_plan

    output = Output(as_json=as_json)
    directory = write_plan(draft_plan(not_after=not_after, **options))
    write_plan_directory(out, directory)
    print_plan(output, directory)
    output.say()
    output.done(f"Written to {out}")
    output.next_step(f"give the whole folder {out} to the other side; both then `approve` it")
    output.result({"plan": directory.plan.digest, "directory": str(out)})


@plan.command()
@click.argument("folder", type=_FOLDER)
@json_option
def show(folder: Path, as_json: bool) -> None:
    """Print a plan in plain language, with the digest that names it."""
    from enclave.cli.output import Output
    from enclave.cli.plan_text import explain, print_plan
    from enclave.clients.party.plan_directory import read_plan_directory

    output = Output(as_json=as_json)
    directory = read_plan_directory(folder)
    print_plan(output, directory)
    output.result(
        {
            "plan": directory.plan.digest,
            "document": directory.plan.to_json(),
            "explanation": {title: list(lines) for title, lines in explain(directory)},
        }
    )


@plan.command()
@click.argument("old", type=_FOLDER)
@click.argument("new", type=_FOLDER)
@json_option
def diff(old: Path, new: Path, as_json: bool) -> None:
    """Say in plain language what changed between two plans."""
    from enclave.cli.output import Output
    from enclave.cli.plan_text import print_changes
    from enclave.clients.party.plan_directory import read_plan_directory

    output = Output(as_json=as_json)
    before, after = read_plan_directory(old), read_plan_directory(new)
    changes = print_changes(output, before, after)
    output.result({"old": before.plan.digest, "new": after.plan.digest, "changes": changes})
