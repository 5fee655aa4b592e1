"""`doubleblind demo`: one whole evaluation on this machine, every party its own process."""

from __future__ import annotations

from pathlib import Path

import click

from enclave.cli.options import json_option

SHORT_ITEMS = 20


@click.command()
@click.option(
    "--out",
    "out_path",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-run"),
    show_default=True,
    help="Where the parties' directories go; an earlier demo there is replaced.",
)
@click.option("--short", is_flag=True, help=f"At most {SHORT_ITEMS} prompts a suite.")
@click.option("--items", type=click.IntRange(min=20, max=100), help="At most this many a suite.")
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the converted model is kept between demos.",
)
@json_option
def demo(out_path: Path, short: bool, items: int | None, cache: Path | None, as_json: bool) -> int:
    """Run a whole double-blind evaluation here, from keys to the audited receipt.

    Real model, real prompts, real processes: a model owner, an evaluator and the
    workload talk over loopback with the commands a user would type. Attestation is
    simulated, so it proves nothing about this machine.
    """
    from enclave.cli.demo_assets.model import default_cache
    from enclave.cli.demo_story import tell_story
    from enclave.cli.output import Output

    output = Output(as_json=as_json)
    summary = tell_story(
        output,
        out_path.absolute(),
        items=items or (SHORT_ITEMS if short else None),
        cache=cache or default_cache(),
    )
    output.result(summary)
    return 0
