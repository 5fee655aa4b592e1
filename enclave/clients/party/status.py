"""Where an evaluation stands, whose turn it is, and which command comes next.

What the enclave says of itself here is not attested: it helps a person find
the next step, and nothing is granted on the strength of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from enclave.clients.party.approving import has_approved
from enclave.clients.party.artifacts import owned_artifacts
from enclave.clients.party.keys import LEDGER_FILE, PartyKeys
from enclave.clients.party.ledger import Ledger
from enclave.clients.party.plan_directory import PlanDirectory
from enclave.clients.party.state import StateDirectory
from enclave.core.session import FINISHED, REFUSED, RUNNING
from enclave.core.vocabulary import APPROVING_ROLES, ARTIFACT_OWNER
from enclave.wire.messages import SessionView

DONE, OPEN, UNKNOWN = "done", "open", "unknown"


@dataclass(frozen=True)
class Step:
    """One step of an evaluation: whose it is and how it stands."""

    name: str
    role: str
    state: str
    detail: str = ""


@dataclass(frozen=True)
class Standing:
    """All steps, whose turn it is (a role; empty for either), and the verb that comes next."""

    steps: tuple[Step, ...]
    turn: str
    next_verb: str


def find_standing(
    state: StateDirectory, keys: PartyKeys, directory: PlanDirectory, view: SessionView | None
) -> Standing:
    """Put together what lies in the state directory and what the enclave says."""
    role, plan = keys.party.role, directory.plan
    sealed = [
        Step(f"seal {artifact}", role, DONE if state.has(f"secrets/{artifact}.json") else OPEN)
        for artifact in owned_artifacts(role)
    ]
    approved = Step("approve", role, DONE if has_approved(state, plan.digest) else OPEN)
    if view is None:
        others = (Step("upload, grant, run", "", UNKNOWN, "give --endpoint to ask the enclave"),)
        return _standing((*sealed, approved, *others), role)
    with Ledger(state.path(LEDGER_FILE)) as ledger:
        granted = len(ledger.runs(plan.digest))
    steps = [*sealed]
    for each in APPROVING_ROLES:
        there = each in view.approvals
        here = each == role and approved.state == DONE and not there
        detail = "signed here, not yet sent: `upload` sends it" if here else ""
        steps.append(Step("approve", each, DONE if there or here else OPEN, detail))
    for artifact, owner in ARTIFACT_OWNER.items():
        there = f"upload:{artifact}" not in view.missing
        steps.append(Step(f"upload {artifact}", owner, DONE if there else OPEN))
    for each, demand in plan.party_evidence.items():
        if demand is not None:
            there = each in view.party_evidence
            steps.append(Step("evidence", each, DONE if there else OPEN, demand.kind))
    for artifact, owner in ARTIFACT_OWNER.items():
        detail = f"{granted} run(s) granted so far" if owner == role else ""
        there = artifact in view.grants
        steps.append(Step(f"grant {artifact}", owner, DONE if there else OPEN, detail))
    spent = f"{view.runs_spent} of {view.max_runs} spent"
    if view.state == RUNNING:
        steps.append(Step("run", "", OPEN, f"run {view.last_run} is going on; {spent}"))
        return Standing(tuple(steps), "", f"run --watch {view.last_run}")
    if view.state == FINISHED:
        steps.append(Step("run", "", DONE, f"run {view.last_run} has finished; {spent}"))
        return Standing(tuple(steps), role, "result")
    if view.state == REFUSED:
        steps.append(Step("run", "", OPEN, f"the last run was refused; {spent}"))
        return Standing(tuple(steps), role, "grant")
    steps.append(Step("run", "", OPEN, spent))
    return _standing(tuple(steps), role)


def _standing(steps: tuple[Step, ...], role: str) -> Standing:
    pending = [step for step in steps if step.state == OPEN]
    if not pending:
        return Standing(steps, role, "upload")
    mine = [step for step in pending if step.role == role]
    first = mine[0] if mine else pending[0]
    return Standing(steps, first.role, first.name.split(" ")[0])
