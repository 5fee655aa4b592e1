"""Attacks on key grants and on the number of runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

from attestation.types import AttestationResult
from enclave.clients.party.artifacts import ArtifactSecret, load_secret
from enclave.clients.party.errors import ClientRefused
from enclave.clients.party.granting import grant_run
from enclave.clients.party.keys import LEDGER_FILE
from enclave.clients.party.ledger import Ledger
from enclave.clients.party.plan_directory import PlanDirectory
from enclave.clients.party.plan_draft import write_plan
from enclave.clients.party.session import PartySession
from enclave.core.canonical import print_canonical
from enclave.core.errors import (
    BindingRefused,
    DocumentRefused,
    GrantRefused,
    RunRefused,
    SessionRefused,
)
from enclave.core.grant import grant_key
from enclave.core.vocabulary import APPROVING_ROLES
from tests.attacks.acceptance import EVALUATOR, HOST, MODEL_OWNER, NETWORK, Step, Table
from tests.attacks.scene import Stage, Workload

ATTACKS = Table()


@dataclass
class Granting:
    """An approved session, a party connected to it, and grants made by its own code."""

    stage: Stage
    workload: Workload
    session: PartySession

    def make(
        self, artifact: str = "model", session: PartySession | None = None, **changes: Any
    ) -> bytes:
        """A grant as the party's client makes it, with arguments replaced."""
        session = session or self.session
        secret = self.secret(artifact)
        terms = {
            "inputs": session.inputs,
            "evidence_digest": session.result.evidence_digest,
            "role": session.role,
            "artifact": artifact,
            "commitment": secret.commitment,
            "run": 1,
            "key": secret.key,
            "salt": secret.salt,
            **changes,
        }
        return grant_key(terms.pop("result", session.result), **terms)

    def secret(self, artifact: str) -> ArtifactSecret:
        role = MODEL_OWNER if artifact == "model" else EVALUATOR
        return load_secret(self.stage.side(role).state, artifact)

    def submit(self, grant: bytes, role: str = "", plan: str = "") -> None:
        self.workload.broker.submit_grant(
            plan or self.workload.plan, role or self.session.role, grant
        )

    def renew(self) -> PartySession:
        """A new session of the same plan, connected to."""
        self.workload.broker.renew_session(self.workload.plan, self.session.role)
        return self.stage.connect(self.session.role, self.session.client.endpoint)


def granting(
    stage: Stage, role: str = MODEL_OWNER, *beside: PlanDirectory, uploaded: bool = False
) -> Granting:
    workload = stage.workload(stage.scene.directory, *beside, approved=True, uploaded=uploaded)
    return Granting(stage, workload, stage.connect(role, stage.serve(workload.broker)))


@ATTACKS.add(
    "grant-for-another-plan",
    by=HOST,
    covers="grant for another plan",
    error=GrantRefused,
    code="grant_other_plan",
)
def grant_for_another_plan(stage: Stage) -> Step:
    """Handed to a session of another plan of the same parties, in the same enclave."""
    made = granting(stage, MODEL_OWNER, stage.scene.other_directory)
    grant = made.make()
    return lambda: made.submit(grant, plan=stage.scene.other_directory.plan.digest)


@ATTACKS.add(
    "grant-for-another-role",
    by=EVALUATOR,
    covers="grant for another role",
    error=GrantRefused,
    code="grant_other_role",
)
def grant_for_another_role(stage: Stage) -> Step:
    """The evaluator hands in the owner's grant as its own."""
    made = granting(stage)
    grant = made.make()
    return lambda: made.submit(grant, role=EVALUATOR)


@ATTACKS.add(
    "grant-of-anothers-artifact",
    by=EVALUATOR,
    covers="grant for another role",
    error=GrantRefused,
    code="grant_other_role",
)
def grant_of_anothers_artifact(stage: Stage) -> Step:
    """The evaluator grants a model of its own making."""
    made = granting(stage, EVALUATOR)
    edited = json.loads(made.make("suite"))
    edited["artifact"] = "model"
    return lambda: made.submit(print_canonical(edited))


@ATTACKS.add(
    "grant-for-another-session",
    by=HOST,
    covers="grant for another session",
    error=GrantRefused,
    code="grant_other_session",
)
def grant_for_another_session(stage: Stage) -> Step:
    """Kept from the last session and handed to the next one of the same plan."""
    made = granting(stage)
    grant = made.make()
    made.renew()
    return lambda: made.submit(grant)


@ATTACKS.add(
    "grant-session-renamed",
    by=HOST,
    covers="grant for another session",
    error=GrantRefused,
    code="grant_sealed_invalid",
)
def grant_session_renamed(stage: Stage) -> Step:
    """The old grant, edited to name the new session and evidence of it."""
    made = granting(stage)
    edited = json.loads(made.make())
    fresh = made.renew()
    edited["session"] = fresh.inputs.session
    edited["evidence"] = fresh.result.evidence_digest
    return lambda: made.submit(print_canonical(edited))


@ATTACKS.add(
    "grant-replayed", by=NETWORK, covers="replayed grant", error=GrantRefused, code="grant_replayed"
)
def grant_replayed(stage: Stage) -> Step:
    made = granting(stage)
    grant = made.make()
    made.submit(grant)
    return lambda: made.submit(grant)


@ATTACKS.add(
    "grant-replayed-after-the-run",
    by=HOST,
    covers="replayed grant",
    error=GrantRefused,
    code="grant_replayed",
)
def grant_replayed_after_the_run(stage: Stage) -> Step:
    made = run_once(stage)
    side = stage.side(MODEL_OWNER)
    spent = grant_run(side.state, made.session, now=stage.scene.now)
    assert spent.resent  # the ledger gives the same bytes again
    grant = sent_grants(stage, MODEL_OWNER)["model"]
    return lambda: made.submit(grant)


@ATTACKS.add("grant-made-twice", by=MODEL_OWNER, error=GrantRefused, code="grant_duplicate")
def grant_made_twice(stage: Stage) -> Step:
    """Two grants of one artifact for one session: the second could swap the key."""
    made = granting(stage)
    made.submit(made.make())
    other = made.make(key=b"k" * 32)
    return lambda: made.submit(other)


@ATTACKS.add("grant-two-runs", by=EVALUATOR, error=GrantRefused, code="grant_other_run")
def grant_two_runs(stage: Stage) -> Step:
    made = granting(stage, EVALUATOR)
    made.submit(made.make("suite", run=1))
    other = made.make("bundle", run=2)
    return lambda: made.submit(other)


@ATTACKS.add("grant-unknown-evidence", by=HOST, error=GrantRefused, code="grant_other_evidence")
def grant_unknown_evidence(stage: Stage) -> Step:
    made = granting(stage)
    edited = {**json.loads(made.make()), "evidence": "ee" * 32}
    return lambda: made.submit(print_canonical(edited))


@ATTACKS.add("grant-commitment-edited", by=HOST, error=GrantRefused, code="grant_other_commitment")
def grant_commitment_edited(stage: Stage) -> Step:
    made = granting(stage)
    edited = {**json.loads(made.make()), "commitment": "ee" * 32}
    return lambda: made.submit(print_canonical(edited))


@ATTACKS.add("grant-run-edited", by=HOST, error=GrantRefused, code="grant_sealed_invalid")
def grant_run_edited(stage: Stage) -> Step:
    """The host raises the run's number, to make one grant serve a later run."""
    made = granting(stage)
    edited = {**json.loads(made.make()), "run": 2}
    return lambda: made.submit(print_canonical(edited))


@ATTACKS.add("grant-unknown-field", by=HOST, error=DocumentRefused, code="document_field_unknown")
def grant_unknown_field(stage: Stage) -> Step:
    made = granting(stage)
    edited = {**json.loads(made.make()), "also_for": "another session"}
    return lambda: made.submit(print_canonical(edited))


@ATTACKS.add("grant-without-appraisal", by=HOST, error=GrantRefused, code="grant_not_appraised")
def grant_without_appraisal(stage: Stage) -> Step:
    """Something that looks like an attestation result."""
    made = granting(stage)
    fake = SimpleNamespace(binding=made.session.result.binding, evidence_digest="00" * 32)
    return lambda: made.make(result=cast("AttestationResult", fake))


@ATTACKS.add("grant-on-other-evidence", by=HOST, error=BindingRefused, code="binding_mismatch")
def grant_on_other_evidence(stage: Stage) -> Step:
    """A genuine appraisal of the last session, used to grant to the next one."""
    made = granting(stage)
    fresh = made.renew()
    return lambda: made.make(session=fresh, result=made.session.result)


@ATTACKS.add(
    "grant-other-sealing", by=EVALUATOR, error=ClientRefused, code="artifact_other_commitment"
)
def grant_other_sealing(stage: Stage) -> Step:
    """A plan that commits to another sealing than the one in the party's hands."""
    cards = stage.scene.draft().cards
    other = {**cards, "model": replace(cards["model"], commitment="ee" * 32)}
    directory = write_plan(stage.scene.draft(cards=other))
    workload = stage.workload(directory)
    approval = stage.approval(MODEL_OWNER, directory)
    workload.broker.submit_approval(workload.plan, MODEL_OWNER, approval)
    session = stage.connect(MODEL_OWNER, stage.serve(workload.broker), directory)
    return lambda: grant_run(stage.side(MODEL_OWNER).state, session, now=stage.scene.now)


# Runs.


def run_once(stage: Stage, times: int = 1) -> Granting:
    """A plan whose parties granted and ran `times` runs, by their own clients."""
    made = granting(stage, uploaded=True)
    for number in range(times):
        if number:
            made.session = made.renew()
        for role in APPROVING_ROLES:
            session = made.session if role == MODEL_OWNER else None
            session = session or stage.connect(role, made.session.client.endpoint)
            grant_run(stage.side(role).state, session, now=stage.scene.now)
        made.workload.run_to_its_end()
    return made


def sent_grants(stage: Stage, role: str) -> dict[str, bytes]:
    """The grants of the party's last run, out of its ledger."""
    with Ledger(stage.side(role).state.path(LEDGER_FILE)) as ledger:
        return dict(ledger.runs(stage.scene.directory.plan.digest)[-1].grants)


@ATTACKS.add(
    "run-past-max-refused-by-the-party",
    by=EVALUATOR,
    covers="run past max_runs",
    error=GrantRefused,
    code="grant_run_budget_spent",
)
def run_past_max_refused_by_the_party(stage: Stage) -> Step:
    """The party's own ledger: the host may forget every run, the party does not."""
    made = run_once(stage, stage.scene.directory.plan.max_runs)
    fresh = made.renew()
    return lambda: grant_run(stage.side(MODEL_OWNER).state, fresh, now=stage.scene.now)


@ATTACKS.add(
    "run-past-max-refused-at-the-grant",
    by=EVALUATOR,
    covers="run past max_runs",
    error=GrantRefused,
    code="grant_run_past_max",
)
def run_past_max_refused_at_the_grant(stage: Stage) -> Step:
    made = granting(stage, EVALUATOR)
    grant = made.make("suite", run=stage.scene.directory.plan.max_runs + 1)
    return lambda: made.submit(grant)


@ATTACKS.add(
    "run-past-max-refused-at-the-start",
    by=MODEL_OWNER,
    covers="run past max_runs",
    error=RunRefused,
    code="run_past_max",
)
def run_past_max_refused_at_the_start(stage: Stage) -> Step:
    """Both parties collude and number their grants anew: the enclave has counted."""
    made = run_once(stage, stage.scene.directory.plan.max_runs)
    fresh = made.renew()
    other = stage.connect(EVALUATOR, fresh.client.endpoint)
    for artifact, session in (("model", fresh), ("suite", other), ("bundle", other)):
        made.submit(made.make(artifact, session), session.role)
    return lambda: made.workload.broker.start_run(made.workload.plan, EVALUATOR)


@ATTACKS.add(
    "run-past-the-narrower-approval",
    by=EVALUATOR,
    covers="run past max_runs",
    error=RunRefused,
    code="run_past_max",
)
def run_past_the_narrower_approval(stage: Stage) -> Step:
    """The owner approved one run of the plan's two; the evaluator asks for the second."""
    stage.approval(MODEL_OWNER, max_runs=1)
    made = granting(stage, uploaded=True)
    other = stage.connect(EVALUATOR, made.session.client.endpoint)
    for artifact, session in (("model", made.session), ("suite", other), ("bundle", other)):
        made.submit(made.make(artifact, session, run=2), session.role)
    return lambda: made.workload.broker.start_run(made.workload.plan, EVALUATOR)


@ATTACKS.add("run-again-in-the-session", by=HOST, error=RunRefused, code="run_session_used")
def run_again_in_the_session(stage: Stage) -> Step:
    made = run_once(stage)
    return lambda: made.workload.broker.start_run(made.workload.plan, MODEL_OWNER)


@ATTACKS.add("grant-after-the-run-began", by=EVALUATOR, error=SessionRefused, code="session_closed")
def grant_after_the_run_began(stage: Stage) -> Step:
    made = run_once(stage)
    late = made.make(key=b"k" * 32)
    return lambda: made.submit(late)


@ATTACKS.add("run-without-uploads", by=HOST, error=RunRefused, code="run_not_ready")
def run_without_uploads(stage: Stage) -> Step:
    made = granting(stage)
    for role in APPROVING_ROLES:
        stage.grant(role, made.session.client.endpoint)
    return lambda: made.workload.broker.start_run(made.workload.plan, MODEL_OWNER)
