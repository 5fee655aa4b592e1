"""Reading what `plan new` was given into a draft."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from enclave.clients.party.artifact_card import MAX_CARD_BYTES, ArtifactCard, parse_artifact_card
from enclave.clients.party.plan_directory import read_file
from enclave.clients.party.plan_draft import EvidencePolicy, PlanDraft, change_settings
from enclave.core.canonical import MAX_DOCUMENT_BYTES
from enclave.core.errors import PlanRefused
from enclave.core.party import MAX_PARTY_BYTES, Party, parse_party
from enclave.core.vocabulary import APPROVING_ROLES


def draft_plan(
    *,
    owner_path: Path,
    evaluator_path: Path,
    model_card: Path | None,
    suite_card: Path | None,
    bundle_card: Path | None,
    other_parties: Sequence[Path],
    attestation_policy: Path,
    reference_values: Path,
    result_policy: Path,
    settings: Sequence[str],
    views: Sequence[str],
    may_publish: Sequence[str],
    publish_after: datetime | None,
    party_evidence: Sequence[tuple[str, str, str, str]],
    **terms: Any,
) -> PlanDraft:
    """The draft of a plan; `terms` are title, max_runs, not_after and min_tier."""
    parties = [_read_party(owner_path), _read_party(evaluator_path)]
    parties += [_read_party(path) for path in other_parties]
    cards = {
        "model": _read_card(model_card, owner_path, "model"),
        "suite": _read_card(suite_card, evaluator_path, "suite"),
        "bundle": _read_card(bundle_card, evaluator_path, "bundle"),
    }
    draft = PlanDraft(
        plan_id=secrets.token_bytes(16),
        parties=parties,
        cards=cards,
        attestation_policy=_read(attestation_policy),
        reference_values=_read(reference_values),
        result_policy=_read(result_policy),
        views=dict(_read_view(text) for text in views),
        may_publish=[role for role in may_publish or APPROVING_ROLES if role != "none"],
        not_before=publish_after,
        party_evidence={
            _read_role(role): EvidencePolicy(kind, _read(Path(policy)), _read(Path(values)))
            for role, kind, policy, values in party_evidence
        },
        min_tier=terms["min_tier"],
        title=terms["title"],
        max_runs=terms["max_runs"],
        not_after=terms["not_after"],
    )
    return change_settings(draft, [_split(text, "--set NAME=VALUE") for text in settings])


def _read(path: Path) -> bytes:
    return read_file(path, max_bytes=MAX_DOCUMENT_BYTES)


def _read_party(path: Path) -> Party:
    document = path / "party.json" if path.is_dir() else path
    return parse_party(read_file(document, max_bytes=MAX_PARTY_BYTES))


def _read_card(given: Path | None, party_path: Path, artifact: str) -> ArtifactCard:
    path = given
    if path is None and party_path.is_dir():
        path = party_path / f"{artifact}.json"
    if path is None or not path.is_file():
        raise PlanRefused(
            "plan_card_missing",
            expected=f"{artifact}.json in the owner's public folder, or --{artifact} FILE",
            hint=f"its owner makes it with `seal` and sends public/{artifact}.json",
        )
    return parse_artifact_card(read_file(path, max_bytes=MAX_CARD_BYTES))


def _read_view(text: str) -> tuple[str, list[str]]:
    view, roles = _split(text, "--view VIEW=ROLE,ROLE")
    return view, roles.split(",")


def _read_role(role: str) -> str:
    if role not in APPROVING_ROLES:
        raise click.UsageError(f"--party-evidence: {role!r} is not model_owner or evaluator")
    return role


def _split(text: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise click.UsageError(f"{text!r} is not of the form {form}")
    return name, value
