"""The session: every transition and every code."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from enclave.core.approval import verify_approval
from enclave.core.binding import compute_binding
from enclave.core.errors import (
    ApprovalRefused,
    GrantRefused,
    PlanRefused,
    RunRefused,
    SessionRefused,
)
from enclave.core.grant import grant_key, parse_grant
from enclave.core.run_facts import PartyEvidence
from enclave.core.session import (
    COLLECTING,
    FINISHED,
    MAX_EVIDENCE_A_ROLE,
    REFUSED,
    RUNNING,
    Session,
)
from enclave.core.vocabulary import APPROVING_ROLES, ARTIFACT_OWNER, ARTIFACTS
from tests.core.builders import NOW
from tests.core.session_steps import (
    CHALLENGE,
    EVERYTHING,
    approve,
    ask,
    envelope,
    fresh,
    grant,
    keys,
    plan_with_demand,
    ready,
    refuse,
    the_world,
)
from tests.core.sessions import SESSION, appraise, attester

# The way it should go.


def test_one_run_to_its_release() -> None:
    session = ready()
    assert session.state == COLLECTING
    assert session.missing(EVERYTHING) == ()
    assert session.begin_run(EVERYTHING, 0, NOW) == 1
    assert session.state == RUNNING
    session.finish()
    assert session.state == FINISHED
    assert session.approved_by == APPROVING_ROLES
    assert session.granted == ARTIFACTS
    assert [entry.label for entry in session.granted_evidence()] == list(APPROVING_ROLES)


def test_one_run_without_a_result() -> None:
    session = ready()
    session.begin_run(EVERYTHING, 0, NOW)
    session.refuse()
    assert session.state == REFUSED


def test_what_is_missing_is_said_in_order() -> None:
    session = fresh()
    assert session.missing(frozenset()) == (
        "approval:model_owner",
        "approval:evaluator",
        "upload:model",
        "upload:suite",
        "upload:bundle",
        "grant:model",
        "grant:suite",
        "grant:bundle",
    )
    assert "party_evidence:model_owner" in fresh(plan_with_demand()).missing(EVERYTHING)


@pytest.mark.parametrize("role", ["model_owner", "evaluator", "reviewer", "auditor"])
def test_evidence_binds_what_the_session_speaks_with(role: str) -> None:
    session = fresh()
    inputs = session.accept_nonce(role, b"n" * 32)
    assert inputs.plan == session.plan.digest
    assert inputs.session == SESSION
    assert inputs.nonces == ((role, b"n" * 32),)
    assert (inputs.tls_spki_sha256, inputs.hpke_key, inputs.signing_key) == (
        keys().tls_spki_sha256,
        keys().hpke_key,
        keys().signing_key,
    )
    # What comes of it is accepted by the appraisal a party makes.
    bundle = attester().collect_evidence(compute_binding(inputs))
    assert appraise(bundle, compute_binding(inputs)).evidence_digest == bundle.digest


# Renewal.


def test_nobody_ends_a_session_that_the_other_has_granted_to() -> None:
    """Its grant is spent in its ledger: renewing at will would use its runs up."""
    session = fresh()
    for role in APPROVING_ROLES:
        approve(session, role)
        session.refuse_renewal(role)
    grant(session, "model", ask(session, "model_owner"))
    session.refuse_renewal("model_owner")  # its own grant it may withdraw
    refuse(SessionRefused, "session_granted", lambda: session.refuse_renewal("evaluator"))
    evidence = ask(session, "evaluator")
    for artifact in ("suite", "bundle"):
        grant(session, artifact, evidence)
    for role in APPROVING_ROLES:
        refuse(SessionRefused, "session_granted", lambda r=role: session.refuse_renewal(r))
    session.begin_run(EVERYTHING, 0, NOW)
    for role in APPROVING_ROLES:
        refuse(SessionRefused, "session_running", lambda r=role: session.refuse_renewal(r))
    session.refuse()
    for role in APPROVING_ROLES:
        session.refuse_renewal(role)


# Nonces.


def test_nonces() -> None:
    session = fresh()
    refuse(SessionRefused, "nonce_missing", lambda: session.accept_nonce("evaluator", b""))
    for size in (1, 31, 33, 64):
        refuse(
            SessionRefused, "nonce_size", lambda n=size: session.accept_nonce("auditor", b"n" * n)
        )
    session.accept_nonce("model_owner", b"n" * 32)
    for role in APPROVING_ROLES:  # the other party's nonce is no fresh one either
        refuse(SessionRefused, "nonce_reused", lambda r=role: session.accept_nonce(r, b"n" * 32))


def test_evidence_is_not_endless() -> None:
    session = fresh()
    for number in range(MAX_EVIDENCE_A_ROLE):
        nonce = number.to_bytes(32, "big")
        session.accept_nonce("evaluator", nonce)
        session.record_evidence("evaluator", nonce, nonce)
    refuse(
        SessionRefused, "evidence_exhausted", lambda: session.accept_nonce("evaluator", b"n" * 32)
    )
    session.accept_nonce("model_owner", b"n" * 32)  # one role can not use up another's


def test_evidence_over_a_nonce_nobody_gave() -> None:
    refuse(
        SessionRefused,
        "nonce_missing",
        lambda: fresh().record_evidence("evaluator", b"n" * 32, b"evidence"),
    )


# Approvals.


def test_the_same_approval_again_changes_nothing() -> None:
    session = ready()
    approve(session, "evaluator")
    session.begin_run(EVERYTHING, 0, NOW)
    approve(session, "evaluator")  # a resent one, after the run began
    assert session.state == RUNNING


def test_two_approvals_of_one_role() -> None:
    session = fresh()
    approve(session, "evaluator")
    refuse(ApprovalRefused, "approval_duplicate", lambda: approve(session, "evaluator", number=2))


def test_an_expired_approval_makes_room() -> None:
    session = fresh()
    approve(session, "evaluator", days=1)
    later = NOW + timedelta(days=2)
    second = verify_approval(envelope("evaluator", session.plan, number=2), session.plan, later)
    session.accept_approval(second, later)
    approve(session, "model_owner")
    assert session.approvals(later).evaluator == second


def test_approval_of_another_plan() -> None:
    other = the_world().other_plan(title="Another")
    approval = verify_approval(envelope("evaluator", other), other, NOW)
    refuse(ApprovalRefused, "approval_other_plan", lambda: fresh().accept_approval(approval, NOW))


def test_an_approval_that_ran_out_before_the_run() -> None:
    session = ready(days=1)
    later = NOW + timedelta(days=1, seconds=1)
    refuse(ApprovalRefused, "approval_expired", lambda: session.begin_run(EVERYTHING, 0, later))
    assert session.state == COLLECTING
    after_the_plan = session.plan.not_after + timedelta(seconds=1)
    refuse(PlanRefused, "plan_expired", lambda: session.begin_run(EVERYTHING, 0, after_the_plan))


# Party evidence.


def test_party_evidence() -> None:
    evidence = PartyEvidence("model_owner", CHALLENGE, b"evidence")
    refuse(
        SessionRefused, "party_evidence_unasked", lambda: fresh().accept_party_evidence(evidence)
    )
    session = fresh(plan_with_demand())
    foreign = PartyEvidence("evaluator", CHALLENGE, b"evidence")
    refuse(SessionRefused, "party_evidence_unasked", lambda: session.accept_party_evidence(foreign))
    approve(session, "model_owner")
    digest = ask(session, "model_owner")
    refuse(GrantRefused, "grant_party_evidence_missing", lambda: grant(session, "model", digest))
    session.accept_party_evidence(evidence)
    grant(session, "model", digest)
    assert session.party_evidence == {"model_owner": evidence}


# Grants.


def made_grant(session: Session) -> bytes:
    inputs = session.accept_nonce("model_owner", b"g" * 32)
    bundle = attester().collect_evidence(compute_binding(inputs))
    return grant_key(
        appraise(bundle, compute_binding(inputs)),
        inputs=inputs,
        evidence_digest=bundle.digest,
        role="model_owner",
        artifact="model",
        commitment=session.plan.model.commitment,
        run=1,
        key=b"k" * 32,
        salt=b"s" * 32,
    )


def test_foreign_grants() -> None:
    session = fresh()
    parsed = parse_grant(made_grant(session))
    session.refuse_foreign_grant("model_owner", parsed)
    for code, role, found in (
        ("grant_other_plan", "model_owner", replace(parsed, plan="00" * 32)),
        ("grant_other_session", "model_owner", replace(parsed, session="00" * 16)),
        ("grant_other_role", "evaluator", parsed),
        ("grant_other_role", "model_owner", replace(parsed, artifact="suite")),
    ):
        refuse(GrantRefused, code, lambda r=role, g=found: session.refuse_foreign_grant(r, g))


def test_grants_out_of_order() -> None:
    session = fresh()
    refuse(GrantRefused, "grant_other_evidence", lambda: grant(session, "model", "00" * 32))
    digest = ask(session, "model_owner")
    refuse(GrantRefused, "grant_approval_missing", lambda: grant(session, "model", digest))
    approve(session, "model_owner")
    approve(session, "evaluator")
    # Evidence that the other party asked for proves nothing to this one.
    refuse(GrantRefused, "grant_other_evidence", lambda: grant(session, "suite", digest))
    grant(session, "model", digest)
    refuse(GrantRefused, "grant_replayed", lambda: grant(session, "model", digest))
    refuse(GrantRefused, "grant_duplicate", lambda: grant(session, "model", digest, run=2))
    own = ask(session, "evaluator")
    grant(session, "suite", own, run=1)
    refuse(GrantRefused, "grant_other_run", lambda: grant(session, "bundle", own, run=2))
    grant(session, "bundle", own, run=1)
    assert session.granted == ARTIFACTS


# Runs.


def test_nothing_begins_before_everything_is_in() -> None:
    refusal = refuse(RunRefused, "run_not_ready", lambda: fresh().begin_run(EVERYTHING, 0, NOW))
    assert "approval:evaluator" in refusal.got
    refusal = refuse(
        RunRefused, "run_not_ready", lambda: ready().begin_run(EVERYTHING - {"suite"}, 0, NOW)
    )
    assert refusal.got == "upload:suite"


@pytest.mark.parametrize(
    ("spent", "granted", "allowed", "expected"),
    [
        (0, 1, 3, 1),
        (1, 2, 3, 2),
        (2, 3, 3, 3),
        (0, 2, 3, 2),
        (3, 1, 3, None),
        (1, 1, 1, None),
        (0, 3, 2, None),
    ],
)
def test_run_numbers(spent: int, granted: int, allowed: int, expected: int | None) -> None:
    """One past what is known here, or what the parties granted if that is more: never less."""
    session = fresh()
    for role in APPROVING_ROLES:
        approve(session, role, max_runs=allowed)
    evidence = {role: ask(session, role) for role in APPROVING_ROLES}
    for artifact, role in ARTIFACT_OWNER.items():
        grant(session, artifact, evidence[role], run=granted)
    if expected is None:
        refuse(RunRefused, "run_past_max", lambda: session.begin_run(EVERYTHING, spent, NOW))
        assert session.state == COLLECTING
    else:
        assert session.begin_run(EVERYTHING, spent, NOW) == expected


def test_the_stricter_approval_limits_the_runs() -> None:
    session = fresh()
    approve(session, "model_owner", max_runs=1)
    approve(session, "evaluator", max_runs=3)
    evidence = {role: ask(session, role) for role in APPROVING_ROLES}
    for artifact, role in ARTIFACT_OWNER.items():
        grant(session, artifact, evidence[role], run=2)
    refuse(RunRefused, "run_past_max", lambda: session.begin_run(EVERYTHING, 1, NOW))


def test_a_session_serves_one_run() -> None:
    session = ready()
    session.begin_run(EVERYTHING, 0, NOW)
    refuse(RunRefused, "run_in_progress", lambda: session.begin_run(EVERYTHING, 0, NOW))
    session.finish()
    refuse(RunRefused, "run_session_used", lambda: session.begin_run(EVERYTHING, 1, NOW))


def test_an_end_needs_a_run() -> None:
    for session in (fresh(), ready()):
        refuse(RunRefused, "run_not_running", session.finish)
        refuse(RunRefused, "run_not_running", session.refuse)
    session = ready()
    session.begin_run(EVERYTHING, 0, NOW)
    session.refuse()
    refuse(RunRefused, "run_not_running", session.finish)
    assert session.state == REFUSED


@pytest.mark.parametrize("end", [None, "finish", "refuse"])
def test_after_the_run_began_nothing_is_accepted(end: str | None) -> None:
    session = fresh(plan_with_demand())
    session.accept_party_evidence(PartyEvidence("model_owner", CHALLENGE, b"evidence"))
    evidence = ask(ready(session), "evaluator", b"m" * 32)
    session.begin_run(EVERYTHING, 0, NOW)
    if end is not None:
        getattr(session, end)()
    party = PartyEvidence("model_owner", CHALLENGE, b"other")
    for action in (
        lambda: approve(session, "evaluator", number=2),
        lambda: session.accept_party_evidence(party),
        lambda: grant(session, "suite", evidence, run=2),
    ):
        refusal = refuse(SessionRefused, "session_closed", action)
        assert refusal.got == session.state
