"""Parse an attestation policy (docs/spec/attestation-policy.md).

A policy is a closed all-of over kinds of evidence: each kind listed must be
there, and nothing else may be.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from attestation.errors import MalformedPolicy
from attestation.parse.canonical import (
    DocumentKind,
    parse_canonical,
    parse_object,
    print_canonical,
)
from attestation.parse.fields import Fields
from attestation.parse.policy.nvidia_gpu_rules import GpuRules, parse_nvidia_gpu_rules
from attestation.parse.policy.sev_snp_rules import SnpRules, parse_sev_snp_rules
from attestation.parse.policy.simulated_rules import SimulatedRules, parse_simulated_rules
from attestation.types.evidence import NVIDIA_GPU, SEV_SNP, SIMULATED

POLICY_TYPE = "https://w3id.org/double-blind/attestation-policy/v1"
MAX_POLICY_BYTES = 256 * 1024
_POLICY = DocumentKind(MalformedPolicy, "policy", "policy.format")

POLICY_KINDS = (NVIDIA_GPU, SEV_SNP, SIMULATED)
"""Kinds that this version of the format has rules for."""


@dataclass(frozen=True, slots=True)
class AppraisalPolicy:
    """A parsed policy. Made by `parse_policy` or `parse_authored_policy`.

    kinds: the evidence that must be presented, in ascending order; empty for a
    policy that denies all. unsafe_simulated: written out by whoever accepts
    evidence that proves nothing.
    """

    name: str
    description: str
    denies_all: bool
    unsafe_simulated: bool
    simulated: SimulatedRules | None
    sev_snp: SnpRules | None
    nvidia_gpu: GpuRules | None
    document: bytes

    @property
    def kinds(self) -> tuple[str, ...]:
        """Required kinds, ascending."""
        rules = {NVIDIA_GPU: self.nvidia_gpu, SEV_SNP: self.sev_snp, SIMULATED: self.simulated}
        return tuple(kind for kind in POLICY_KINDS if rules[kind] is not None)

    @property
    def digest(self) -> str:
        """SHA-256 of `to_bytes()` as 64 lower hex digits: the policy's name in a plan."""
        return hashlib.sha256(self.document).hexdigest()

    def to_bytes(self) -> bytes:
        """The RFC 8785 bytes of the document."""
        return self.document


def parse_policy(data: bytes) -> AppraisalPolicy:
    """Parse a policy in its one spelling, as plans name it. Raises MalformedPolicy.

    Files that people write may be indented: read those with
    `parse_authored_policy` and pass its `to_bytes()` on.
    """
    return _read_policy(parse_canonical(data, kind=_POLICY, max_bytes=MAX_POLICY_BYTES))


def parse_authored_policy(data: bytes) -> AppraisalPolicy:
    """Parse a policy as an author wrote it: only whitespace and the order of keys are free."""
    return _read_policy(parse_object(data, kind=_POLICY, max_bytes=MAX_POLICY_BYTES))


def _read_policy(value: dict[str, Any]) -> AppraisalPolicy:
    fields = Fields(value, "policy", _POLICY)
    fields.constant("type", POLICY_TYPE)
    name = fields.identifier("name")
    description = fields.text("description", max_length=400)
    denies_all = fields.constant("decision", "appraise", "deny_all") == "deny_all"
    unsafe_simulated = fields.flag("unsafe_simulated")
    kinds = fields.object("kinds")
    listed = fields.keys("kinds")
    _refuse_contradictions(listed, denies_all=denies_all, unsafe_simulated=unsafe_simulated)
    policy = AppraisalPolicy(
        name=name,
        description=description,
        denies_all=denies_all,
        unsafe_simulated=unsafe_simulated,
        simulated=parse_simulated_rules(kinds.object(SIMULATED)) if SIMULATED in listed else None,
        sev_snp=parse_sev_snp_rules(kinds.object(SEV_SNP)) if SEV_SNP in listed else None,
        nvidia_gpu=(
            parse_nvidia_gpu_rules(kinds.object(NVIDIA_GPU)) if NVIDIA_GPU in listed else None
        ),
        document=print_canonical(value, kind=_POLICY),
    )
    kinds.done()
    fields.done()
    return policy


def _refuse_contradictions(
    listed: tuple[str, ...], *, denies_all: bool, unsafe_simulated: bool
) -> None:
    for kind in listed:
        if kind not in POLICY_KINDS:
            expected = " or ".join(POLICY_KINDS)
            raise _POLICY.refuse("kind_unknown", "policy.kinds", expected, repr(kind))
    if denies_all and listed:
        raise _POLICY.refuse("deny_all_with_kinds", "policy.kinds", "{}", f"{len(listed)} kinds")
    if not denies_all and not listed:
        # An empty all-of would accept everything.
        raise _POLICY.refuse("empty", "policy.kinds", "at least one kind", "{}")
    if unsafe_simulated != (SIMULATED in listed):
        raise _POLICY.refuse(
            "simulated_contradiction",
            "policy.unsafe_simulated",
            "true exactly where the kind `simulated` is listed",
            str(unsafe_simulated).lower(),
        )
