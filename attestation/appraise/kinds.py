"""Which kinds of evidence are there: exactly those that the policy lists, each so often."""

from __future__ import annotations

from collections import Counter

from attestation.errors import PolicyRefused
from attestation.parse.policy import AppraisalPolicy
from attestation.types.claims import Claims, GpuClaims
from attestation.types.evidence import NVIDIA_GPU, SIMULATED
from attestation.verify.checklist import Checklist


def record_decision(policy: AppraisalPolicy, checks: Checklist) -> None:
    """A policy may refuse everything, by its own word."""
    _record(
        checks,
        "policy.decision",
        holds=not policy.denies_all,
        code="policy_denies_all",
        field="decision",
        expected="appraise",
        got="deny_all",
    )


def record_kinds(policy: AppraisalPolicy, claims: tuple[Claims, ...], checks: Checklist) -> None:
    """Required kinds present, no other kind present, no kind twice but GPUs."""
    counts = Counter(claim.kind for claim in claims)
    required = set(policy.kinds)
    _record(
        checks,
        "kinds.simulated",
        holds=SIMULATED not in counts or policy.unsafe_simulated,
        code="simulated_refused",
        field="kind",
        expected="hardware evidence (the policy does not say unsafe_simulated)",
        got=SIMULATED,
    )
    unlisted = sorted(set(counts) - required - {SIMULATED})
    _record(
        checks,
        "kinds.unlisted",
        holds=not unlisted,
        code="kind_unlisted",
        field="kind",
        expected=" and ".join(policy.kinds),
        got=", ".join(unlisted),
    )
    missing = sorted(required - set(counts))
    _record(
        checks,
        "kinds.required",
        holds=not missing,
        code="kind_missing",
        field="kind",
        expected=" and ".join(missing),
        got="no such evidence",
    )
    repeated = sorted(kind for kind, count in counts.items() if count > 1 and kind != NVIDIA_GPU)
    _record(
        checks,
        "kinds.repeated",
        holds=not repeated,
        code="kind_repeated",
        field="kind",
        expected="one item of each kind",
        got=", ".join(f"{counts[kind]} of {kind}" for kind in repeated),
    )


def record_gpu_set(policy: AppraisalPolicy, claims: tuple[Claims, ...], checks: Checklist) -> None:
    """As many GPUs as the policy says, and each another device."""
    if policy.nvidia_gpu is None:
        return
    ueids = [claim.ueid for claim in claims if isinstance(claim, GpuClaims)]
    wanted = policy.nvidia_gpu.count
    _record(
        checks,
        "nvidia-gpu.count",
        holds=len(ueids) == wanted,
        code="nvidia_gpu_count",
        field="GPU count",
        expected=str(wanted),
        got=str(len(ueids)),
    )
    _record(
        checks,
        "nvidia-gpu.distinct",
        holds=len(set(ueids)) == len(ueids),
        code="nvidia_gpu_device_repeated",
        field="UEID",
        expected="each device once",
        got=f"{len(set(ueids))} devices in {len(ueids)} items",
    )


def _record(
    checks: Checklist, name: str, *, holds: bool, code: str, field: str, expected: str, got: str
) -> None:
    if holds:
        checks.verified(name)
    else:
        checks.failed(name, PolicyRefused, code=code, field=field, expected=expected, got=got)
