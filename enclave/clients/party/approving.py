"""Approving a plan: what is looked at before a party signs, and where the approval is kept."""

from __future__ import annotations

from datetime import datetime

from enclave.clients.party.artifacts import load_secret, owned_artifacts, refuse_other_artifact
from enclave.clients.party.errors import ClientRefused, StateRefused
from enclave.clients.party.keys import PartyKeys
from enclave.clients.party.plan_directory import PlanDirectory
from enclave.clients.party.session import refuse_foreign_plan
from enclave.clients.party.state import StateDirectory
from enclave.core.approval import Approval, sign_approval, verify_approval
from enclave.core.budget import refuse_over_budget
from enclave.core.errors import ApprovalRefused, PlanRefused
from enclave.core.plan import Plan
from enclave.core.result_policy import parse_result_policy


def review_plan(
    state: StateDirectory, keys: PartyKeys, directory: PlanDirectory, *, now: datetime
) -> None:
    """Refuse a plan this party must not sign.

    It names this party with all its keys, commits to the artifacts sealed here,
    has not expired and releases no more than its policy allows.
    Raises ClientRefused `plan_not_mine`, `artifact_other_commitment`; PlanRefused;
    ReleaseRefused.
    """
    plan = directory.plan
    refuse_foreign_plan(directory, keys.party)
    plan.refuse_expired(now)
    for artifact in owned_artifacts(keys.party.role):
        refuse_other_artifact(plan, load_secret(state, artifact))
    refuse_over_budget(plan, parse_result_policy(directory.result_policy))


def approve_plan(
    state: StateDirectory,
    keys: PartyKeys,
    directory: PlanDirectory,
    *,
    max_runs: int,
    not_after: datetime,
    nonce: bytes,
    now: datetime,
) -> Approval:
    """Sign an approval and keep it. A plan is approved once.

    Raises ClientRefused `plan_already_approved`: a second approval with other terms
    would leave two valid ones about.
    """
    plan = directory.plan
    name = _approval_file(plan.digest)
    kept = _approval_in_force(state, plan, now)
    if kept is not None:
        if (kept.max_runs, kept.not_after) == (max_runs, not_after):
            return kept
        raise ClientRefused(
            "plan_already_approved",
            expected="one approval of a plan",
            got=f"approved for {kept.max_runs} runs",
            hint="other terms need a new plan",
        )
    envelope = sign_approval(plan, keys.party.role, keys.signing_key, nonce, max_runs, not_after)
    approval = verify_approval(envelope, plan, now)
    state.write(name, envelope)
    return approval


def load_approval(state: StateDirectory, directory: PlanDirectory, now: datetime) -> Approval:
    """This party's own approval of a plan, still valid at `now`.

    Raises StateRefused `plan_not_approved`; ApprovalRefused `approval_expired`.
    """
    plan = directory.plan
    name = _approval_file(plan.digest)
    if not state.has(name):
        raise StateRefused(
            "plan_not_approved",
            expected=f"your approval of plan {plan.digest[:16]}…",
            hint="read the plan with `plan show`, then `approve` it",
        )
    approval = verify_approval(state.read(name), plan, now)
    plan.refuse_expired(now)
    return approval


def _approval_in_force(state: StateDirectory, plan: Plan, now: datetime) -> Approval | None:
    """The approval kept here, or None where there is none or it has run out."""
    name = _approval_file(plan.digest)
    if not state.has(name):
        return None
    try:
        return verify_approval(state.read(name), plan, now)
    except ApprovalRefused as refusal:
        if refusal.code == "approval_expired":
            return None
        raise


def has_approved(state: StateDirectory, plan_digest: str) -> bool:
    """Whether an approval of the plan is kept here, valid or not."""
    return state.has(_approval_file(plan_digest))


def _approval_file(plan_digest: str) -> str:
    if len(plan_digest) != 64:
        raise PlanRefused("plan_document_digest", expected="64 hex digits")
    return f"plans/{plan_digest}/approval.json"
