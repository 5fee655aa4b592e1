"""`doubleblind evaluator`: what the evaluator does."""

from __future__ import annotations

from pathlib import Path

import click

from enclave.cli.options import json_option, state_option
from enclave.cli.party_verbs import add_shared_verbs

_ROLE = "evaluator"
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group()
def evaluator() -> None:
    """What the evaluator does, in this order: seal, approve, upload, grant, result."""


@evaluator.command()
@click.option("--suite", "suite_path", type=_FOLDER, help="Folder with the secret questions.")
@click.option("--bundle", "bundle_path", type=_FOLDER, help="Folder with the eval code.")
@click.option("--replace", is_flag=True, help="Seal again under a new key; old plans are void.")
@state_option
@json_option
def seal(
    suite_path: Path | None,
    bundle_path: Path | None,
    replace: bool,
    state_path: Path,
    as_json: bool,
) -> None:
    """Seal the suite, the eval bundle, or both, each under a fresh key."""
    from enclave.cli.connecting import open_state
    from enclave.cli.output import Output
    from enclave.cli.seal import seal_one

    sources = {"suite": suite_path, "bundle": bundle_path}
    if suite_path is None and bundle_path is None:
        raise click.UsageError("Give --suite DIR, --bundle DIR, or both.")
    output = Output(as_json=as_json)
    state, _keys = open_state(state_path, _ROLE)
    with state.locked():
        sealed = {
            artifact: seal_one(output, state, artifact, source, replace=replace)
            for artifact, source in sources.items()
            if source is not None
        }
    output.next_step(f"give {state.root / 'public'} to the model owner, with the eval code itself")
    output.result({"sealed": sealed, "public": str(state.root / "public")})


add_shared_verbs(evaluator, _ROLE)
