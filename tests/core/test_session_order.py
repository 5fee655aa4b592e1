"""The session under any order of calls (hypothesis)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from enclave.core.canonical import digest_bytes
from enclave.core.errors import Refusal
from enclave.core.session import COLLECTING, FINISHED, REFUSED, RUNNING
from enclave.core.vocabulary import APPROVING_ROLES, ARTIFACT_OWNER, ARTIFACTS
from tests.core.builders import NOW
from tests.core.session_steps import EVERYTHING, approve, fresh, grant


class AnyOrder(RuleBasedStateMachine):
    """Calls in any order, against a second bookkeeping of what must be true."""

    def __init__(self) -> None:
        super().__init__()
        self.session = fresh()
        self.uploaded: set[str] = set()
        self.now = NOW
        self.evidence: dict[str, str] = {}
        self.asked = 0
        self.states = [COLLECTING]

    @rule(role=st.sampled_from(APPROVING_ROLES), number=st.integers(1, 2))
    def approve(self, role: str, number: int) -> None:
        before = role in self.session.approved_by
        self._attempt(lambda: approve(self.session, role, number=number))
        assert role in self.session.approved_by or not before

    @rule(role=st.sampled_from(APPROVING_ROLES))
    def ask(self, role: str) -> None:
        nonce = self.asked.to_bytes(32, "big")
        self.asked += 1
        self.session.accept_nonce(role, nonce)
        evidence = b"evidence over " + nonce
        self.session.record_evidence(role, nonce, evidence)
        self.evidence[role] = digest_bytes(evidence)

    @rule(artifact=st.sampled_from(ARTIFACTS), run=st.integers(1, 3), swap=st.booleans())
    def grant(self, artifact: str, run: int, swap: bool) -> None:
        owner = ARTIFACT_OWNER[artifact]
        asker = next(r for r in APPROVING_ROLES if (r == owner) != swap)
        accepted = self._attempt(
            lambda: grant(self.session, artifact, self.evidence.get(asker, "00" * 32), run=run)
        )
        if accepted:
            assert not swap
            assert owner in self.session.approved_by

    @rule()
    def hurry(self) -> None:
        """What honest parties would do next, so that runs come about."""
        for role in APPROVING_ROLES:
            if role not in self.session.approved_by:
                self.approve(role, 1)
            if self.session.state == COLLECTING:
                self.ask(role)
        for artifact in ARTIFACTS:
            self.uploaded.add(artifact)
            self.grant(artifact, 1, False)

    @rule(artifact=st.sampled_from(ARTIFACTS))
    def upload(self, artifact: str) -> None:
        self.uploaded.add(artifact)

    @rule(spent=st.integers(0, 3))
    def begin(self, spent: int) -> None:
        lacking = self.session.missing(frozenset(self.uploaded))
        runs: list[int] = []
        began = self._attempt(
            lambda: runs.append(self.session.begin_run(frozenset(self.uploaded), spent, self.now))
        )
        if began:
            assert lacking == ()
            assert self.states == [COLLECTING]
            assert spent < runs[0] <= self.session.plan.max_runs

    @rule(well=st.booleans())
    def end(self, well: bool) -> None:
        was = self.session.state
        ended = self._attempt(self.session.finish if well else self.session.refuse)
        assert ended == (was == RUNNING)

    @rule(days=st.integers(0, 12))
    @precondition(lambda self: self.session.state == COLLECTING)
    def wait(self, days: int) -> None:
        self.now += timedelta(days=days)

    def _attempt(self, action: Callable[[], object]) -> bool:
        """Only typed refusals may come out."""
        try:
            action()
        except Refusal:
            return False
        return True

    @invariant()
    def state_only_goes_forward(self) -> None:
        if self.session.state != self.states[-1]:
            self.states.append(self.session.state)
        assert self.states in (
            [COLLECTING],
            [COLLECTING, RUNNING],
            [COLLECTING, RUNNING, FINISHED],
            [COLLECTING, RUNNING, REFUSED],
        )

    @invariant()
    def a_running_session_lacks_nothing(self) -> None:
        if self.session.state != COLLECTING:
            assert self.session.missing(EVERYTHING) == ()
            assert self.session.approved_by == APPROVING_ROLES


AnyOrder.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestAnyOrder = AnyOrder.TestCase
