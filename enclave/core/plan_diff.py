"""What changed between two plans, one line a field, in plain language."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from enclave.core.canonical import digest_bytes
from enclave.core.plan import Plan

ABSENT = "(absent)"


@dataclass(frozen=True)
class Change:
    """One field that differs: its path, both values as text, and what it means."""

    path: str
    old: str
    new: str
    meaning: str


# First match wins. Every leaf of a plan has an entry here; a test holds that.
_MEANINGS: tuple[tuple[str, str], ...] = (
    (r"type", "the document's format"),
    (r"title", "the evaluation's title"),
    (r"plan_id", "which draft this is: approvals of the other one do not count"),
    (r"parties\.[^.]+\.signing_key", "who can approve in this party's name"),
    (r"parties\.[^.]+\.tls_certificate", "who can connect in this party's name"),
    (r"parties\.[^.]+\.recipient_key", "who can read what is released to this party"),
    (r"parties\..*", "who takes part"),
    (r"(model|suite|bundle)\.commitment", r"which \1 is evaluated"),
    (r"(model|suite|bundle)\.max_bytes", r"how large the \1 may be"),
    (r"(model|suite|bundle)\.max_files", r"how many files the \1 may have"),
    (r"bundle\.salt", "the public salt of the eval code's commitment"),
    (r"bundle\.environment", "the runtime the eval code is written for"),
    (r"engine\.dtype", "the model's number format: results may differ"),
    (r"engine\.threads", "how many threads compute: results may differ in the last bits"),
    (r"engine\.batch", "how many prompts are computed together"),
    (r"engine\.seed", "the seed of sampling"),
    (r"engine\.(temperature|top_p)", "how tokens are sampled"),
    (r"engine\.max_new_tokens", "how long an answer may be"),
    (r"engine\.max_context", "how long prompt and answer may be together"),
    (r"engine\.template_sha256", "the chat template the model sees"),
    (r"limits\.max_samples", "how many samples may run, and so how many bits the counts tell"),
    (r"limits\.result_bytes", "how much the eval code may hand to the gate"),
    (r"limits\..*", "what one run may use"),
    (r"isolation\.min_tier", "how strongly the eval code must be confined"),
    (r"attestation_policy", "what the enclave must prove before a key is granted"),
    (r"reference_values", "which enclave software is accepted"),
    (r"result_policy", "what may be released"),
    (r"views\..*", "who learns a view"),
    (r"publication\.may_publish", "who may publish"),
    (r"publication\.not_before", "when publishing may begin"),
    (r"party_evidence\.(\w+).*", r"what hardware the \1 must show to the enclave"),
    (r"max_runs", "how many runs are allowed, and so how many bits in total"),
    (r"not_after", "until when the plan is valid"),
)
_MEANING_PATTERNS = tuple((re.compile(pattern + r"\Z"), text) for pattern, text in _MEANINGS)
_KEY_FIELDS = ("signing_key", "tls_certificate", "recipient_key")


def _print(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(str(entry) for entry in value) or "nobody"
    return "none" if value is None else str(value)


def _flatten(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, entry in value.items():
        path = f"{prefix}{key}"
        if isinstance(entry, dict):
            yield from _flatten(entry, f"{path}.")
        elif key in _KEY_FIELDS:
            yield path, f"sha256:{digest_bytes(base64.b64decode(entry))}"
        else:
            yield path, _print(entry)


def flatten_plan(plan: Plan) -> dict[str, str]:
    """Every leaf of a plan as path and text; parties by role and position, keys by SHA-256."""
    document = plan.to_json()
    document["parties"] = {
        f"{role}#{index}" if index else role: party.fields()
        for role, parties in plan.parties_by_role.items()
        for index, party in enumerate(parties)
    }
    document["party_evidence"] = {
        role: {"kind": None} if demand is None else demand.to_json()
        for role, demand in plan.party_evidence.items()
    }
    return dict(_flatten(document, ""))


def explain_path(path: str) -> str:
    """What a field of the plan decides."""
    for pattern, text in _MEANING_PATTERNS:
        match = pattern.match(path)
        if match is not None:
            return match.expand(text)
    raise ValueError(f"no meaning for {path}")


def _print_meaning(path: str, old: str, new: str) -> str:
    meaning = explain_path(path)
    if old.isdigit() and new.isdigit():
        return f"{meaning} ({'more' if int(new) > int(old) else 'less'} than before)"
    return meaning


def diff_plans(old: Plan, new: Plan) -> list[Change]:
    """Every field that differs, in the order of the older plan, added fields last.

    A change anywhere makes another plan: no approval carries over.
    """
    before, after = flatten_plan(old), flatten_plan(new)
    return [
        Change(
            path,
            before.get(path, ABSENT),
            after.get(path, ABSENT),
            _print_meaning(path, before.get(path, ABSENT), after.get(path, ABSENT)),
        )
        for path in dict.fromkeys([*before, *after])
        if before.get(path) != after.get(path)
    ]
