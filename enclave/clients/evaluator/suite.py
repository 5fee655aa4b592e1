"""The evaluator's own steps: sealing suite and bundle, and what it reads in a plan besides."""

from __future__ import annotations

import hmac
import tomllib
from collections.abc import Callable
from pathlib import Path

from enclave.clients.party.artifact_card import ArtifactCard
from enclave.clients.party.artifacts import load_card, seal_into_state
from enclave.clients.party.errors import ClientRefused
from enclave.clients.party.plan_directory import PlanDirectory, read_file
from enclave.clients.party.state import StateDirectory

_MAX_BYTES = 64 * 1024


def seal_suite(
    state: StateDirectory,
    source: Path,
    *,
    replace: bool,
    progress: Callable[[int, int], None] | None = None,
) -> ArtifactCard:
    """Seal the folder of secret questions. Raises ClientRefused `artifact_already_sealed`."""
    return seal_into_state(state, "suite", source, replace=replace, progress=progress)


def seal_bundle(
    state: StateDirectory,
    source: Path,
    *,
    replace: bool,
    progress: Callable[[int, int], None] | None = None,
) -> ArtifactCard:
    """Seal the eval code; its card states its environment and, as both read it, its salt.

    Raises ClientRefused `artifact_already_sealed`, `bundle_description`.
    """
    return seal_into_state(
        state,
        "bundle",
        source,
        replace=replace,
        environment=read_environment(source),
        progress=progress,
    )


def review_bundle(state: StateDirectory, directory: PlanDirectory) -> None:
    """Refuse a plan that states another salt or environment of the bundle than its own.

    The salt lets the model owner compare the code: a wrong one would hide other code.
    Raises ClientRefused `plan_other_bundle_terms`.
    """
    card, terms = load_card(state, "bundle"), directory.plan.bundle
    if not hmac.compare_digest(card.salt or "", terms.salt):
        raise ClientRefused("plan_other_bundle_terms", expected=f"salt {card.salt}", got=terms.salt)
    if card.environment != terms.environment:
        raise ClientRefused(
            "plan_other_bundle_terms",
            expected=f"environment {card.environment}",
            got=terms.environment,
        )


def read_environment(folder: Path) -> str:
    """The runtime that a bundle's `bundle.toml` names.

    Raises ClientRefused `bundle_description`.
    """
    description = folder / "bundle.toml"
    try:
        value = (
            tomllib.loads(read_file(description, max_bytes=_MAX_BYTES).decode())
            if description.is_file()
            else {}
        )
    except ValueError:
        value = {}
    environment = value.get("environment")
    if not isinstance(environment, str):
        raise ClientRefused(
            "bundle_description",
            expected=f'{description}: TOML with `environment = "…"`',
            hint="see docs/spec/eval-bundle.md",
        )
    return environment
