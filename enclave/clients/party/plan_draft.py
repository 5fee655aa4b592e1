"""Writing a plan out of what both sides gave: parties, artifact cards, policies, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from attestation.appraise import parse_policy, parse_reference_values
from enclave.clients.party.artifact_card import ArtifactCard
from enclave.clients.party.errors import ClientRefused
from enclave.clients.party.plan_directory import PlanDirectory
from enclave.core.budget import refuse_over_budget
from enclave.core.canonical import digest_bytes, parse_json_object, print_canonical
from enclave.core.errors import PlanRefused
from enclave.core.party import Party
from enclave.core.plan import parse_plan
from enclave.core.result_policy import parse_result_policy
from enclave.core.times import print_time
from enclave.core.vocabulary import APPROVING_ROLES, ARTIFACTS, EVALUATOR, MODEL_OWNER, PLAN_TYPE

_MIB = 2**20


@dataclass(frozen=True)
class EngineSettings:
    """How the model is run; the defaults are greedy and deterministic."""

    dtype: str = "float32"
    threads: int = 1
    batch: int = 1
    seed: int = 0
    temperature: str = "0"
    top_p: str = "1"
    max_new_tokens: int = 256
    max_context: int = 2048


@dataclass(frozen=True)
class LimitSettings:
    """What a run may use at most."""

    wall_seconds: int = 3600
    cpu_seconds: int = 7200
    memory_bytes: int = 2048 * _MIB
    tmp_bytes: int = 64 * _MIB
    processes: int = 64
    open_files: int = 256
    result_bytes: int = 64 * 1024
    max_samples: int = 10_000


@dataclass(frozen=True)
class EvidencePolicy:
    """What a party's own hardware evidence must satisfy; both documents as JSON bytes."""

    kind: str
    policy: bytes
    reference_values: bytes


@dataclass(frozen=True)
class PlanDraft:
    """Everything a plan needs. Documents are JSON bytes in any spelling."""

    title: str
    plan_id: bytes
    parties: Sequence[Party]
    cards: Mapping[str, ArtifactCard]
    attestation_policy: bytes
    reference_values: bytes
    result_policy: bytes
    max_runs: int
    not_after: datetime
    engine: EngineSettings = EngineSettings()
    limits: LimitSettings = LimitSettings()
    min_tier: str = "T2"
    views: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """View id to roles; a view of the result policy that is not named goes to both parties."""
    may_publish: Sequence[str] = APPROVING_ROLES
    not_before: datetime | None = None
    party_evidence: Mapping[str, EvidencePolicy] = field(default_factory=dict)


def change_settings(draft: PlanDraft, changes: Sequence[tuple[str, str]]) -> PlanDraft:
    """Apply settings such as ("engine.seed", "7") or ("limits.wall_seconds", "600").

    Raises ClientRefused `plan_setting_unknown`, `plan_setting_value`.
    """
    engine, limits = asdict(draft.engine), asdict(draft.limits)
    sections = {"engine": engine, "limits": limits}
    for name, text in changes:
        section, _, key = name.partition(".")
        values = sections.get(section, {})
        if key not in values:
            known = [f"{each}.{field}" for each, fields in sections.items() for field in fields]
            raise ClientRefused("plan_setting_unknown", expected=", ".join(known), got=name)
        if isinstance(values[key], int):
            if not text.isascii() or not text.isdigit() or len(text) > 16:
                raise ClientRefused("plan_setting_value", expected=f"{name}: a whole number")
            values[key] = int(text)
        else:
            values[key] = text
    return replace(draft, engine=EngineSettings(**engine), limits=LimitSettings(**limits))


def write_plan(draft: PlanDraft) -> PlanDirectory:
    """The plan of a draft, parsed back, with every document it pins.

    Raises what the parsers of the plan and of its documents raise, and
    ReleaseRefused `release_budget_exceeded` when it could release too much.
    """
    documents: dict[str, bytes] = {}

    def pin(data: bytes) -> str:
        canonical = print_canonical(parse_json_object(data))
        documents[digest_bytes(canonical)] = canonical
        return digest_bytes(canonical)

    attestation_policy = pin(draft.attestation_policy)
    reference_values = pin(draft.reference_values)
    result_policy = pin(draft.result_policy)
    parse_policy(documents[attestation_policy])
    parse_reference_values(documents[reference_values])
    results = parse_result_policy(documents[result_policy])
    evidence: dict[str, Any] = dict.fromkeys(APPROVING_ROLES)
    for role, demand in draft.party_evidence.items():
        policy, references = pin(demand.policy), pin(demand.reference_values)
        parse_policy(documents[policy])
        parse_reference_values(documents[references])
        evidence[role] = {"kind": demand.kind, "policy": policy, "reference_values": references}
    views = {view: list(APPROVING_ROLES) for view in results.views}
    views |= {view: list(roles) for view, roles in draft.views.items()}
    plan = parse_plan(
        print_canonical(
            {
                "type": PLAN_TYPE,
                "title": draft.title,
                "plan_id": draft.plan_id.hex(),
                "parties": [party.fields() for party in _ordered(draft.parties)],
                **_artifact_terms(draft.cards),
                "engine": {
                    **asdict(draft.engine),
                    "template_sha256": draft.cards["model"].template_sha256,
                },
                "limits": asdict(draft.limits),
                "isolation": {"min_tier": draft.min_tier},
                "attestation_policy": attestation_policy,
                "reference_values": reference_values,
                "result_policy": result_policy,
                "views": views,
                "publication": {
                    "may_publish": list(draft.may_publish),
                    "not_before": (
                        "release" if draft.not_before is None else print_time(draft.not_before)
                    ),
                },
                "party_evidence": evidence,
                "max_runs": draft.max_runs,
                "not_after": print_time(draft.not_after),
            }
        )
    )
    refuse_over_budget(plan, results)
    return PlanDirectory(plan, documents)


def _artifact_terms(cards: Mapping[str, ArtifactCard]) -> dict[str, Any]:
    terms: dict[str, Any] = {}
    for artifact in ARTIFACTS:
        card = cards.get(artifact)
        if card is None or card.artifact != artifact:
            raise PlanRefused(
                "plan_card_missing",
                expected=f"the artifact card of the {artifact}",
                hint=f"its owner makes it with `seal`: public/{artifact}.json",
            )
        terms[artifact] = {
            "commitment": card.commitment,
            "max_bytes": card.max_bytes,
            "max_files": card.max_files,
        }
    terms["bundle"] |= {"salt": cards["bundle"].salt, "environment": cards["bundle"].environment}
    return terms


def _ordered(parties: Sequence[Party]) -> list[Party]:
    order = {MODEL_OWNER: 0, EVALUATOR: 1}
    return sorted(parties, key=lambda party: (order.get(party.role, 2), party.role, party.name))
