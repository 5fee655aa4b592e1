"""The parts of a plan: each reads itself from closed fields and prints itself back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from enclave.core.errors import PlanRefused
from enclave.core.fields import Fields
from enclave.core.times import parse_time, print_time
from enclave.core.vocabulary import DIGEST_SIZE, ROLES

AT_RELEASE = "release"
TIERS = ("T1", "T2", "T3")
"""Isolation tiers a plan may demand, weakest first. T0 (none) cannot be written."""

_MAX_BYTES = 2**44
_SALT_SIZE = 32


@dataclass(frozen=True)
class ArtifactTerms:
    """What a sealed artifact must be: its salted commitment (hex) and its upper bounds."""

    commitment: str
    max_bytes: int
    max_files: int

    def to_json(self) -> dict[str, Any]:
        """The object as it stands in the plan."""
        return asdict(self)


@dataclass(frozen=True)
class BundleTerms(ArtifactTerms):
    """The eval code. Both parties read it, so its salt (hex) is public.

    environment: name of the runtime the code is written for.
    """

    salt: str
    environment: str


@dataclass(frozen=True)
class Engine:
    """How the model is run. `temperature` and `top_p` are canonical decimals."""

    dtype: str
    threads: int
    batch: int
    seed: int
    temperature: str
    top_p: str
    max_new_tokens: int
    max_context: int
    template_sha256: str

    def to_json(self) -> dict[str, Any]:
        """The object as it stands in the plan."""
        return asdict(self)


@dataclass(frozen=True)
class Limits:
    """Upper bounds of one run, in seconds, bytes and counts; exceeding one ends the run."""

    wall_seconds: int
    cpu_seconds: int
    memory_bytes: int
    tmp_bytes: int
    processes: int
    open_files: int
    result_bytes: int
    max_samples: int

    def to_json(self) -> dict[str, Any]:
        """The object as it stands in the plan."""
        return asdict(self)


@dataclass(frozen=True)
class Isolation:
    """The weakest isolation tier the run may have."""

    min_tier: str

    def to_json(self) -> dict[str, Any]:
        """The object as it stands in the plan."""
        return asdict(self)


@dataclass(frozen=True)
class Publication:
    """Who may publish what they learn, and from when (None: as soon as it is released)."""

    may_publish: tuple[str, ...]
    not_before: datetime | None

    def to_json(self) -> dict[str, Any]:
        """The object as it stands in the plan."""
        moment = AT_RELEASE if self.not_before is None else print_time(self.not_before)
        return {"may_publish": list(self.may_publish), "not_before": moment}


@dataclass(frozen=True)
class EvidenceDemand:
    """Hardware evidence that a party must show: its kind and the digests to appraise it by."""

    kind: str
    policy: str
    reference_values: str

    def to_json(self) -> dict[str, Any]:
        """The object as it stands in the plan."""
        return asdict(self)


def read_artifact(fields: Fields) -> ArtifactTerms:
    """Read `model` or `suite`."""
    terms = ArtifactTerms(
        commitment=fields.hex("commitment", DIGEST_SIZE),
        max_bytes=fields.integer("max_bytes", 1, _MAX_BYTES),
        max_files=fields.integer("max_files", 1, 100_000),
    )
    fields.done()
    return terms


def read_bundle(fields: Fields) -> BundleTerms:
    """Read `bundle`."""
    terms = BundleTerms(
        commitment=fields.hex("commitment", DIGEST_SIZE),
        max_bytes=fields.integer("max_bytes", 1, _MAX_BYTES),
        max_files=fields.integer("max_files", 1, 100_000),
        salt=fields.hex("salt", _SALT_SIZE),
        environment=fields.identifier("environment"),
    )
    fields.done()
    return terms


def read_engine(fields: Fields) -> Engine:
    """Read `engine`; refuses sampling parameters outside their mathematical range."""
    engine = Engine(
        dtype=fields.constant("dtype", "float32", "bfloat16"),
        threads=fields.integer("threads", 1, 1024),
        batch=fields.integer("batch", 1, 1),
        seed=fields.integer("seed", 0, 2**32 - 1),
        temperature=fields.decimal("temperature"),
        top_p=fields.decimal("top_p"),
        max_new_tokens=fields.integer("max_new_tokens", 1, 2**20),
        max_context=fields.integer("max_context", 1, 2**24),
        template_sha256=fields.hex("template_sha256", DIGEST_SIZE),
    )
    fields.done()
    if not 0 <= Decimal(engine.temperature) <= 2:
        raise PlanRefused("plan_engine_temperature", expected="0 to 2", got=engine.temperature)
    if not 0 < Decimal(engine.top_p) <= 1:
        raise PlanRefused("plan_engine_top_p", expected="above 0, at most 1", got=engine.top_p)
    if engine.max_new_tokens > engine.max_context:
        raise PlanRefused(
            "plan_engine_context",
            expected=f"max_new_tokens at most max_context = {engine.max_context}",
            got=str(engine.max_new_tokens),
        )
    return engine


def read_limits(fields: Fields) -> Limits:
    """Read `limits`. result_bytes stays below half a frame between compartments (1 MiB)."""
    limits = Limits(
        wall_seconds=fields.integer("wall_seconds", 1, 30 * 86400),
        cpu_seconds=fields.integer("cpu_seconds", 1, 1024 * 30 * 86400),
        memory_bytes=fields.integer("memory_bytes", 2**20, _MAX_BYTES),
        tmp_bytes=fields.integer("tmp_bytes", 0, _MAX_BYTES),
        processes=fields.integer("processes", 1, 4096),
        open_files=fields.integer("open_files", 8, 2**16),
        result_bytes=fields.integer("result_bytes", 64, 2**19),
        max_samples=fields.integer("max_samples", 1, 10_000_000),
    )
    fields.done()
    return limits


def read_isolation(fields: Fields) -> Isolation:
    """Read `isolation`."""
    isolation = Isolation(min_tier=fields.constant("min_tier", *TIERS))
    fields.done()
    return isolation


def read_roles(fields: Fields, name: str, low: int) -> tuple[str, ...]:
    """Read a list of distinct roles."""
    roles = fields.identifiers(name, low, len(ROLES))
    for role in roles:
        if role not in ROLES:
            raise PlanRefused("plan_unknown_role", expected=" or ".join(ROLES), got=role)
    return roles


def read_publication(fields: Fields) -> Publication:
    """Read `publication`."""
    may_publish = read_roles(fields, "may_publish", 0)
    moment = fields.text("not_before", max_length=20)
    fields.done()
    return Publication(may_publish, None if moment == AT_RELEASE else parse_time(moment))


def read_evidence_demand(fields: Fields | None) -> EvidenceDemand | None:
    """Read one entry of `party_evidence`; null means that no hardware evidence is asked for."""
    if fields is None:
        return None
    demand = EvidenceDemand(
        kind=fields.identifier("kind"),
        policy=fields.hex("policy", DIGEST_SIZE),
        reference_values=fields.hex("reference_values", DIGEST_SIZE),
    )
    fields.done()
    return demand
