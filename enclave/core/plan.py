"""Plan: everything both parties agree to before a secret moves (docs/spec/plan.md).

Its RFC 8785 bytes are its only spelling; their SHA-256 is the evaluation's name.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any

from enclave.core.canonical import digest_bytes, parse_canonical, print_canonical
from enclave.core.errors import PlanRefused, SessionRefused
from enclave.core.fields import Fields
from enclave.core.party import Party, read_party
from enclave.core.plan_terms import (
    ArtifactTerms,
    BundleTerms,
    Engine,
    EvidenceDemand,
    Isolation,
    Limits,
    Publication,
    read_artifact,
    read_bundle,
    read_engine,
    read_evidence_demand,
    read_isolation,
    read_limits,
    read_publication,
    read_roles,
)
from enclave.core.times import parse_time, print_time
from enclave.core.vocabulary import (
    APPROVING_ROLES,
    ARTIFACTS,
    DIGEST_SIZE,
    MAX_RUNS,
    PLAN_TYPE,
    ROLES,
)

MAX_PLAN_BYTES = 256 * 1024
PLAN_ID_SIZE = 16
MAX_PARTIES = 16
MAX_VIEWS = 16


@dataclass(frozen=True)
class Plan:
    """A plan that parsed. Made only by `parse_plan`; attributes mirror the document.

    attestation_policy, reference_values, result_policy: SHA-256, hex.
    views: view id to the roles that receive it.
    """

    title: str
    plan_id: str
    parties: tuple[Party, ...]
    model: ArtifactTerms
    suite: ArtifactTerms
    bundle: BundleTerms
    engine: Engine
    limits: Limits
    isolation: Isolation
    attestation_policy: str
    reference_values: str
    result_policy: str
    views: Mapping[str, tuple[str, ...]]
    publication: Publication
    party_evidence: Mapping[str, EvidenceDemand | None]
    max_runs: int
    not_after: datetime

    def __hash__(self) -> int:
        # Mappings do not hash; equal plans have equal bytes.
        return hash(self.digest)

    def to_json(self) -> dict[str, Any]:
        """The plan as a JSON object."""
        return {
            "type": PLAN_TYPE,
            "title": self.title,
            "plan_id": self.plan_id,
            "parties": [party.fields() for party in self.parties],
            "model": self.model.to_json(),
            "suite": self.suite.to_json(),
            "bundle": self.bundle.to_json(),
            "engine": self.engine.to_json(),
            "limits": self.limits.to_json(),
            "isolation": self.isolation.to_json(),
            "attestation_policy": self.attestation_policy,
            "reference_values": self.reference_values,
            "result_policy": self.result_policy,
            "views": {view: list(roles) for view, roles in self.views.items()},
            "publication": self.publication.to_json(),
            "party_evidence": {
                role: None if demand is None else demand.to_json()
                for role, demand in self.party_evidence.items()
            },
            "max_runs": self.max_runs,
            "not_after": print_time(self.not_after),
        }

    def to_bytes(self) -> bytes:
        """The plan as RFC 8785 bytes, equal to those it was parsed from."""
        return print_canonical(self.to_json())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the bytes, hex: the name of the evaluation."""
        return digest_bytes(self.to_bytes())

    @cached_property
    def parties_by_role(self) -> Mapping[str, tuple[Party, ...]]:
        """Every role, and its parties in the order of the plan."""
        return MappingProxyType(
            {role: tuple(p for p in self.parties if p.role == role) for role in ROLES}
        )

    def party(self, role: str) -> Party:
        """The only party of a role; refused where there is none or more than one."""
        parties = self.parties_by_role.get(role, ())
        if len(parties) != 1:
            raise PlanRefused(
                "plan_party_not_single", expected=f"one {role}", got=str(len(parties))
            )
        return parties[0]

    def party_of_spki(self, tls_spki_sha256: bytes) -> Party:
        """The party whose certificate has this key hash; refusal `peer_unknown`."""
        for party in self.parties:
            if party.tls_spki_sha256 == tls_spki_sha256:
                return party
        raise SessionRefused("peer_unknown", expected="a certificate named in the plan")

    def artifact(self, name: str) -> ArtifactTerms:
        """The terms of `model`, `suite` or `bundle`."""
        if name not in ARTIFACTS:
            raise PlanRefused("plan_unknown_artifact", expected=" or ".join(ARTIFACTS))
        terms: ArtifactTerms = getattr(self, name)
        return terms

    def documents(self) -> tuple[str, ...]:
        """Digests of every document the plan pins, without repetition, in a fixed order."""
        pinned = [self.attestation_policy, self.reference_values, self.result_policy]
        for demand in self.party_evidence.values():
            if demand is not None:
                pinned += [demand.policy, demand.reference_values]
        return tuple(dict.fromkeys(pinned))

    def refuse_expired(self, now: datetime) -> None:
        """Refuse `plan_expired` after the plan's last second."""
        if now > self.not_after:
            raise PlanRefused(
                "plan_expired",
                expected=f"now at most {print_time(self.not_after)}",
                got=print_time(now),
            )


def _read_parties(fields: Fields) -> tuple[Party, ...]:
    entries = fields.array("parties", 1, MAX_PARTIES)
    return tuple(
        read_party(Fields(entry, f"plan.parties[{index}]")) for index, entry in enumerate(entries)
    )


def _read_views(fields: Fields) -> Mapping[str, tuple[str, ...]]:
    entries = fields.mapping("views", 1, MAX_VIEWS)
    views = Fields(entries, "plan.views")
    return MappingProxyType({view: read_roles(views, view, 1) for view in sorted(entries)})


def _read_party_evidence(fields: Fields) -> Mapping[str, EvidenceDemand | None]:
    demands = {role: read_evidence_demand(fields.nullable_object(role)) for role in APPROVING_ROLES}
    fields.done()
    return MappingProxyType(demands)


def _refuse_repeated(parties: tuple[Party, ...]) -> None:
    """A key or name that stands for two parties would let one speak as the other.

    Signing and TLS keys are compared in one set, so that a key has one use.
    Certificate subjects differ because TLS stacks look up roots by subject.
    """
    keys = [party.key_id for party in parties]
    keys += [party.tls_spki_sha256.hex() for party in parties]
    seen: tuple[tuple[str, list[str] | list[bytes]], ...] = (
        ("signing and TLS keys", keys),
        ("recipient keys", [party.recipient_key for party in parties]),
        ("certificate subjects", [party.tls_subject for party in parties]),
        ("names", [unicodedata.normalize("NFKC", party.name).casefold() for party in parties]),
    )
    for what, values in seen:
        if len(set(values)) != len(values):
            raise PlanRefused("plan_party_not_distinct", expected=f"distinct {what}")


def _refuse_inconsistent(plan: Plan) -> None:
    for role in APPROVING_ROLES:
        if len(plan.parties_by_role[role]) != 1:
            raise PlanRefused(
                "plan_party_not_single",
                expected=f"one {role}",
                got=str(len(plan.parties_by_role[role])),
            )
    _refuse_repeated(plan.parties)
    for view, roles in plan.views.items():
        for role in roles:
            if len(plan.parties_by_role[role]) != 1:
                raise PlanRefused(
                    "plan_view_recipient",
                    expected=f"view {view}: exactly one {role} in the plan",
                    got=str(len(plan.parties_by_role[role])),
                )
    for role in plan.publication.may_publish:
        if not any(role in roles for roles in plan.views.values()):
            raise PlanRefused("plan_publisher_without_view", expected=f"a view for {role}")


def parse_plan(data: bytes) -> Plan:
    """Parse a plan (canonical bytes, closed).

    Shape errors are `DocumentRefused` (codes `document_*`), broken rules are
    `PlanRefused` (codes `plan_*`).  Expiry is the caller's question:
    `Plan.refuse_expired(now)`.
    """
    fields = Fields(parse_canonical(data, max_bytes=MAX_PLAN_BYTES), "plan")
    fields.constant("type", PLAN_TYPE)
    plan = Plan(
        title=fields.text("title", max_length=120),
        plan_id=fields.hex("plan_id", PLAN_ID_SIZE),
        parties=_read_parties(fields),
        model=read_artifact(fields.object("model")),
        suite=read_artifact(fields.object("suite")),
        bundle=read_bundle(fields.object("bundle")),
        engine=read_engine(fields.object("engine")),
        limits=read_limits(fields.object("limits")),
        isolation=read_isolation(fields.object("isolation")),
        attestation_policy=fields.hex("attestation_policy", DIGEST_SIZE),
        reference_values=fields.hex("reference_values", DIGEST_SIZE),
        result_policy=fields.hex("result_policy", DIGEST_SIZE),
        views=_read_views(fields),
        publication=read_publication(fields.object("publication")),
        party_evidence=_read_party_evidence(fields.object("party_evidence")),
        max_runs=fields.integer("max_runs", 1, MAX_RUNS),
        not_after=parse_time(fields.text("not_after", max_length=20)),
    )
    fields.done()
    _refuse_inconsistent(plan)
    return plan
