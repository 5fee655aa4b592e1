"""Sealing one artifact for its owner, with a bar and the card that results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from enclave.cli.output import Output
from enclave.clients.evaluator.suite import seal_bundle, seal_suite
from enclave.clients.model_owner.model import seal_model
from enclave.clients.party.artifacts import sealed_folder
from enclave.clients.party.state import StateDirectory

_SEALERS = {"model": seal_model, "suite": seal_suite, "bundle": seal_bundle}


def seal_one(
    output: Output, state: StateDirectory, artifact: str, source: Path, *, replace: bool
) -> dict[str, Any]:
    """Seal, say what came out, and return it for `--json`."""
    with output.progress(f"Sealing {artifact}") as advance:
        card = _SEALERS[artifact](state, source, replace=replace, progress=advance)
    output.done(f"The {artifact} is sealed in {sealed_folder(state, artifact)}")
    output.facts(
        [
            ("commitment", card.commitment),
            ("limits", f"{card.max_bytes} bytes, {card.max_files} files (rounded up)"),
            ("card", str(state.root / "public" / f"{artifact}.json")),
        ]
    )
    return {
        "commitment": card.commitment,
        "sealed": str(sealed_folder(state, artifact)),
        "card": str(state.root / "public" / f"{artifact}.json"),
    }
