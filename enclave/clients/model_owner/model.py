"""The model owner's own steps: sealing the model, and what it reads in a plan besides."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path

from enclave.clients.party.artifact_card import ArtifactCard
from enclave.clients.party.artifacts import load_card, seal_into_state
from enclave.clients.party.errors import ClientRefused
from enclave.clients.party.plan_directory import PlanDirectory, read_file
from enclave.clients.party.sealing import commit_folder
from enclave.clients.party.state import StateDirectory

_MAX_BYTES = 8 * 1024 * 1024


def seal_model(
    state: StateDirectory,
    source: Path,
    *,
    replace: bool,
    progress: Callable[[int, int], None] | None = None,
) -> ArtifactCard:
    """Seal a model folder; its card states the digest of its chat template.

    Raises ClientRefused `artifact_already_sealed`, `model_template_ambiguous`.
    """
    return seal_into_state(
        state,
        "model",
        source,
        replace=replace,
        template_sha256=read_template_digest(source),
        progress=progress,
    )


def review_engine(state: StateDirectory, directory: PlanDirectory) -> None:
    """Refuse a plan that runs this model under another chat template.

    Raises ClientRefused `plan_other_template`.
    """
    own = load_card(state, "model").template_sha256
    stated = directory.plan.engine.template_sha256
    if own != stated:
        raise ClientRefused("plan_other_template", expected=own or "none", got=stated)


def review_code(directory: PlanDirectory, bundle: Path) -> None:
    """Refuse a plan that would run other eval code than the folder in hand.

    The bundle's salt is in the plan, so its commitment can be recomputed.
    Raises ClientRefused `plan_other_bundle`.
    """
    terms = directory.plan.bundle
    found = commit_folder(bundle, "bundle", bytes.fromhex(terms.salt))
    if not hmac.compare_digest(found, terms.commitment):
        raise ClientRefused(
            "plan_other_bundle",
            expected=f"the eval code in {bundle}, commitment {found[:16]}…",
            got=f"{terms.commitment[:16]}…",
            hint="the plan would run other code than the one you hold",
        )


def read_template_digest(folder: Path) -> str:
    """SHA-256 (hex) of a model's chat template, as the model host computes it.

    A model without a template has that of the empty text: it completes, but can not chat.
    Raises ClientRefused `model_template_ambiguous`.
    """
    configured = _configured_template(folder / "tokenizer_config.json")
    file = folder / "chat_template.jinja"
    if file.is_file():
        data = read_file(file, max_bytes=_MAX_BYTES)
        if configured is not None and configured.encode() != data:
            raise ClientRefused(
                "model_template_ambiguous",
                expected=f"one chat template, in {file}",
                hint="remove the other one from tokenizer_config.json",
            )
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha256((configured or "").encode()).hexdigest()


def _configured_template(settings: Path) -> str | None:
    try:
        value = json.loads(read_file(settings, max_bytes=_MAX_BYTES)) if settings.is_file() else {}
    except ValueError:
        value = None
    template = value.get("chat_template") if isinstance(value, dict) else value
    if not isinstance(value, dict) or not (template is None or isinstance(template, str)):
        raise ClientRefused(
            "model_template_ambiguous", expected=f"{settings}: at most one template, as text"
        )
    return template
