"""Release: from a suspicious frame to one sealed view a recipient (docs/spec/release.md)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from enclave.core.budget import refuse_over_budget
from enclave.core.canonical import digest_bytes
from enclave.core.encoding import lp
from enclave.core.errors import DocumentRefused, ReleaseRefused
from enclave.core.fields import Fields
from enclave.core.hpke import RecipientPrivateKey, open_with, seal_to
from enclave.core.party import Party
from enclave.core.plan import Plan
from enclave.core.release_view import (
    ReleasedMetric,
    ReleasedView,
    parse_view,
    refuse_off_slot,
)
from enclave.core.result_frame import RELEASE_CODES, ParsedResult, parse_result
from enclave.core.result_policy import ResultPolicy
from enclave.core.vocabulary import SESSION_SIZE

__all__ = [
    "RELEASE_CODES",
    "ParsedResult",
    "ReleasedMetric",
    "ReleasedView",
    "SealedView",
    "open_view",
    "parse_result",
    "parse_view",
    "release_result",
    "seal_release",
    "seal_view",
]

_TAG = b"doubleblind/release/v1"


@dataclass(frozen=True)
class SealedView:
    """One view for one role; `sealed` is HPKE ciphertext of the policy's fixed size."""

    view: str
    role: str
    sealed: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the sealed bytes, hex: what the receipt names."""
        return digest_bytes(self.sealed)


def release_result(
    result: ParsedResult, *, plan: Plan, policy: ResultPolicy, session: str, run: int, slot: str
) -> tuple[ReleasedView, ...]:
    """Write every view of the plan anew from the declared values.

    session: 16 bytes, hex.  run: counted from 1.  slot: `print_slot(now, policy.slot_seconds)`.
    """
    if not isinstance(result, ParsedResult):
        raise ReleaseRefused("release_not_parsed", expected="a ParsedResult")
    refuse_over_budget(plan, policy)
    if (result.plan, result.policy) != (plan.digest, policy.digest):
        raise ReleaseRefused("release_other_plan", expected="a result parsed under this plan")
    if not 1 <= run <= plan.max_runs:
        raise ReleaseRefused("release_run_past_max", expected=f"1 to {plan.max_runs}", got=str(run))
    Fields({"session": session}, "release").hex("session", SESSION_SIZE)
    refuse_off_slot(slot, policy.slot_seconds)
    return tuple(
        ReleasedView(
            plan=plan.digest,
            session=session,
            run=run,
            view=view,
            slot=slot,
            metrics=tuple(
                ReleasedMetric(
                    metric.id, metric.print_value(result.steps[metric.id]), result.steps[metric.id]
                )
                for metric in policy.metrics_of(view)
            ),
        )
        for view in plan.views
    )


def _info(plan: str, session: str, run: int, view: str, role: str) -> bytes:
    return lp(
        _TAG,
        bytes.fromhex(plan),
        bytes.fromhex(session),
        struct.pack(">I", run),
        view.encode("ascii"),
        role.encode("ascii"),
    )


def seal_view(
    view: ReleasedView, recipient: Party, *, plan: Plan, policy: ResultPolicy
) -> SealedView:
    """Seal a view to one recipient that the plan names for it."""
    if recipient.role not in plan.views.get(view.view, ()) or recipient not in plan.parties:
        raise ReleaseRefused("release_foreign_recipient", expected=f"a recipient of {view.view}")
    info = _info(view.plan, view.session, view.run, view.view, recipient.role)
    sealed = seal_to(recipient.recipient_key, info, view.to_bytes(policy.release_bytes))
    return SealedView(view.view, recipient.role, sealed)


def seal_release(
    views: tuple[ReleasedView, ...], *, plan: Plan, policy: ResultPolicy
) -> tuple[SealedView, ...]:
    """Seal every view to every recipient, in the order of the plan."""
    return tuple(
        seal_view(view, plan.party(role), plan=plan, policy=policy)
        for view in views
        for role in plan.views[view.view]
    )


def open_view(
    sealed: bytes,
    private_key: RecipientPrivateKey,
    *,
    plan: Plan,
    policy: ResultPolicy,
    session: str,
    run: int,
    view: str,
    role: str,
) -> ReleasedView:
    """Open a sealed view at its recipient and check it against plan and policy."""
    refuse_over_budget(plan, policy)
    if role not in plan.views.get(view, ()):
        raise ReleaseRefused("release_foreign_recipient", expected=f"a recipient of {view}")
    try:
        data = open_with(private_key, _info(plan.digest, session, run, view, role), sealed)
    except DocumentRefused:
        raise ReleaseRefused(
            "release_sealed_invalid", expected="a view sealed to this key, plan, session and run"
        ) from None
    released = parse_view(data, view, policy)
    if (released.plan, released.session, released.run) != (plan.digest, session, run):
        raise ReleaseRefused("release_view_mismatch", expected="this plan, session and run")
    return released
