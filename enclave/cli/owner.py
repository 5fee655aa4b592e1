"""`doubleblind owner`: what the model owner does."""

from __future__ import annotations

from pathlib import Path

import click

from enclave.cli.options import json_option, state_option
from enclave.cli.party_verbs import add_shared_verbs

_ROLE = "model_owner"


@click.group()
def owner() -> None:
    """What the model owner does, in this order: seal, approve, upload, grant, result."""


@owner.command()
@click.option(
    "--model",
    "model_path",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder with the weights (safetensors), tokenizer and template.",
)
@click.option("--replace", is_flag=True, help="Seal again under a new key; old plans are void.")
@state_option
@json_option
def seal(model_path: Path, replace: bool, state_path: Path, as_json: bool) -> None:
    """Seal the model under a fresh key."""
    from enclave.cli.connecting import open_state
    from enclave.cli.output import Output
    from enclave.cli.seal import seal_one

    output = Output(as_json=as_json)
    state, _keys = open_state(state_path, _ROLE)
    with state.locked():
        sealed = {"model": seal_one(output, state, "model", model_path, replace=replace)}
    output.next_step(f"give {state.root / 'public'} to the evaluator, or write the plan yourself")
    output.result({"sealed": sealed, "public": str(state.root / "public")})


add_shared_verbs(owner, _ROLE)
