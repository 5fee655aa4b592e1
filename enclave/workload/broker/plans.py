"""Plans the workload was started with: plan.json and the documents it pins, by digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from attestation.appraise import AppraisalPolicy, parse_policy
from attestation.parse.reference_values import ReferenceValues, parse_reference_values
from enclave.core.budget import refuse_over_budget
from enclave.core.canonical import MAX_DOCUMENT_BYTES, digest_bytes
from enclave.core.errors import DocumentRefused, PlanRefused
from enclave.core.plan import MAX_PLAN_BYTES, Plan, parse_plan
from enclave.core.result_policy import ResultPolicy, parse_result_policy


@dataclass(frozen=True)
class PartyDemand:
    """By what a party's own evidence is appraised."""

    policy: AppraisalPolicy
    reference_values: ReferenceValues


@dataclass(frozen=True)
class LoadedPlan:
    """A plan whose documents are there, parsed, and within its budget."""

    plan: Plan
    result_policy: ResultPolicy
    demands: Mapping[str, PartyDemand]


def load_plan(folder: Path) -> LoadedPlan:
    """Read a plan directory. Everything the plan pins must be there and parse.

    Raises PlanRefused (`plan_document_missing`, `plan_document_digest`), DocumentRefused,
    ReleaseRefused, AttestationError.
    """
    plan = parse_plan(_read(folder / "plan.json", MAX_PLAN_BYTES))
    documents = {
        digest: _read_pinned(folder / "documents" / f"{digest}.json", digest)
        for digest in plan.documents()
    }
    policy = parse_result_policy(documents[plan.result_policy])
    refuse_over_budget(plan, policy)
    # Not used here, but a plan whose parties could not appraise must not start.
    parse_policy(documents[plan.attestation_policy])
    parse_reference_values(documents[plan.reference_values])
    demands = {
        role: PartyDemand(
            parse_policy(documents[demand.policy]),
            parse_reference_values(documents[demand.reference_values]),
        )
        for role, demand in plan.party_evidence.items()
        if demand is not None
    }
    return LoadedPlan(plan, policy, demands)


def _read_pinned(path: Path, digest: str) -> bytes:
    data = _read(path, MAX_DOCUMENT_BYTES)
    if digest_bytes(data) != digest:
        raise PlanRefused("plan_document_digest", expected=digest, got=digest_bytes(data))
    return data


def _read(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError:
        raise PlanRefused(
            "plan_document_missing",
            expected=path.name,
            hint="give the workload the whole plan directory, documents/ included",
        ) from None
    if len(data) > limit:
        raise DocumentRefused("document_too_large", expected=f"at most {limit} bytes")
    return data
