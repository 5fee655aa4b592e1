"""Session: the order in which one run comes about (docs/spec/session.md).

Pure and single-threaded: the broker feeds it what arrived and asks what may
happen next.  Wrong order and bad data are refused; the state never goes back.

    collecting --begin_run--> running --finish--> finished
                                      --refuse--> refused

A session serves one run.  The next run needs a new session, with new keys,
new evidence and new grants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from enclave.core.approval import Approval, Approvals, verify_approvals
from enclave.core.binding import NONCE_SIZE, BindingInputs
from enclave.core.canonical import digest_bytes
from enclave.core.errors import ApprovalRefused, GrantRefused, RunRefused, SessionRefused
from enclave.core.grant import KeyGrant
from enclave.core.plan import Plan
from enclave.core.run_facts import PartyEvidence, SessionEvidence, SessionKeys
from enclave.core.vocabulary import APPROVING_ROLES, ARTIFACT_OWNER, ARTIFACTS

COLLECTING: Final = "collecting"
RUNNING: Final = "running"
FINISHED: Final = "finished"
REFUSED: Final = "refused"

MAX_EVIDENCE_A_ROLE = 128
"""How often a role may ask for evidence in one session."""


@dataclass(frozen=True)
class AcceptedGrant:
    """What the session keeps of a grant: everything but the key.

    evidence, digest: SHA-256, hex, of the evidence it was made for and of its bytes.
    """

    artifact: str
    role: str
    evidence: str
    run: int
    digest: str


class Session:
    """One session of one plan."""

    def __init__(self, plan: Plan, session: str, keys: SessionKeys, challenge: bytes) -> None:
        """`session`: 16 bytes, hex. `challenge`: 32 fresh bytes for the parties' own evidence."""
        self.plan = plan
        self.session = session
        self.keys = keys
        self.challenge = challenge
        self.state = COLLECTING
        self._nonces: set[bytes] = set()
        self._evidence: dict[str, dict[str, SessionEvidence]] = {}
        self._approvals: dict[str, Approval] = {}
        self._party_evidence: dict[str, PartyEvidence] = {}
        self._grants: dict[str, AcceptedGrant] = {}

    def accept_nonce(self, role: str, nonce: bytes) -> BindingInputs:
        """Take a verifier's nonce: what the evidence over it has to bind.

        Raises SessionRefused `nonce_missing`, `nonce_size`, `nonce_reused`, `evidence_exhausted`.
        """
        if not nonce:
            raise SessionRefused("nonce_missing", expected=f"{NONCE_SIZE} bytes")
        if len(nonce) != NONCE_SIZE:
            raise SessionRefused(
                "nonce_size", expected=f"{NONCE_SIZE} bytes", got=f"{len(nonce)} bytes"
            )
        if nonce in self._nonces:
            raise SessionRefused(
                "nonce_reused", expected="a fresh random nonce", hint="never repeat a nonce"
            )
        if len(self._evidence.get(role, {})) >= MAX_EVIDENCE_A_ROLE:
            raise SessionRefused(
                "evidence_exhausted",
                expected=f"at most {MAX_EVIDENCE_A_ROLE} requests a role",
                hint="wait for a new session",
            )
        inputs = BindingInputs(
            plan=self.plan.digest,
            session=self.session,
            tls_spki_sha256=self.keys.tls_spki_sha256,
            hpke_key=self.keys.hpke_key,
            signing_key=self.keys.signing_key,
            nonces=((role, nonce),),
        )
        self._nonces.add(nonce)
        return inputs

    def record_evidence(self, role: str, nonce: bytes, evidence: bytes) -> None:
        """Remember the evidence given over an accepted nonce: a grant has to name it."""
        if nonce not in self._nonces:
            raise SessionRefused("nonce_missing", expected="a nonce that was accepted")
        entry = SessionEvidence(role, nonce, evidence)
        self._evidence.setdefault(role, {})[digest_bytes(evidence)] = entry

    def accept_approval(self, approval: Approval, now: datetime) -> None:
        """Take a verified approval.

        The same approval again changes nothing; another one of the same role is
        refused (`approval_duplicate`) while the first is valid.
        """
        if approval.plan != self.plan.digest:
            raise ApprovalRefused("approval_other_plan", expected=self.plan.digest)
        kept = self._approvals.get(approval.role)
        if kept is not None and kept.digest == approval.digest:
            return
        self._refuse_unless_collecting("approval")
        if kept is not None and now <= kept.not_after:
            raise ApprovalRefused(
                "approval_duplicate", expected=f"one approval of {approval.role} in force"
            )
        self._approvals[approval.role] = approval

    def accept_party_evidence(self, evidence: PartyEvidence) -> None:
        """Take evidence of a party that was verified and appraised."""
        self._refuse_unless_collecting("party evidence")
        if self.plan.party_evidence.get(evidence.role) is None:
            raise SessionRefused(
                "party_evidence_unasked", expected=f"no evidence of {evidence.role}"
            )
        self._party_evidence[evidence.role] = evidence

    def refuse_foreign_grant(self, role: str, grant: KeyGrant) -> None:
        """Refuse a grant that names another plan, session or role, before it is opened.

        Raises GrantRefused `grant_other_plan`, `grant_other_session`, `grant_other_role`.
        """
        expectations = (
            ("grant_other_plan", self.plan.digest, grant.plan),
            ("grant_other_session", self.session, grant.session),
            ("grant_other_role", role, grant.role),
            ("grant_other_role", ARTIFACT_OWNER[grant.artifact], grant.role),
        )
        for code, expected, got in expectations:
            if expected != got:
                raise GrantRefused(code, expected=expected, got=got)

    def refuse_grant(self, role: str, evidence: str, digest: str) -> None:
        """Refuse a grant that comes too late, again, or for evidence never given.

        Raises GrantRefused `grant_replayed`, `grant_other_evidence`, `grant_approval_missing`,
        `grant_party_evidence_missing`.
        """
        if any(grant.digest == digest for grant in self._grants.values()):
            raise GrantRefused("grant_replayed", expected="a grant that was not used before")
        self._refuse_unless_collecting("grant")
        if evidence not in self._evidence.get(role, {}):
            raise GrantRefused(
                "grant_other_evidence", expected="evidence of this session", got=evidence
            )
        if role not in self._approvals:
            raise GrantRefused("grant_approval_missing", expected=f"the approval of {role} first")
        if self.plan.party_evidence.get(role) is not None and role not in self._party_evidence:
            raise GrantRefused(
                "grant_party_evidence_missing", expected=f"evidence of the {role} itself first"
            )

    def accept_grant(self, grant: AcceptedGrant) -> None:
        """Take a grant that was opened. One an artifact: `grant_duplicate`."""
        self.refuse_grant(grant.role, grant.evidence, grant.digest)
        if grant.artifact in self._grants:
            raise GrantRefused("grant_duplicate", expected=f"one grant of {grant.artifact}")
        for other in self._grants.values():
            if other.role == grant.role and other.run != grant.run:
                raise GrantRefused(
                    "grant_other_run", expected=f"run {other.run}", got=str(grant.run)
                )
        self._grants[grant.artifact] = grant

    def missing(self, uploaded: frozenset[str]) -> tuple[str, ...]:
        """What a run still waits for, as identifiers like `approval:evaluator`."""
        lacking = [f"approval:{role}" for role in APPROVING_ROLES if role not in self._approvals]
        lacking += [
            f"party_evidence:{role}"
            for role, demand in self.plan.party_evidence.items()
            if demand is not None and role not in self._party_evidence
        ]
        lacking += [f"upload:{artifact}" for artifact in ARTIFACTS if artifact not in uploaded]
        lacking += [f"grant:{artifact}" for artifact in ARTIFACTS if artifact not in self._grants]
        return tuple(lacking)

    def begin_run(self, uploaded: frozenset[str], runs_spent: int, now: datetime) -> int:
        """Start the run and return its number; from here on nothing more is accepted.

        The number is one past the runs known here, or the number the parties
        granted if that is higher: a host that rolled this machine's memory back
        can not make an old number come again.

        Raises RunRefused `run_not_ready`, `run_in_progress`, `run_session_used`,
        `run_past_max`; ApprovalRefused.
        """
        if self.state == RUNNING:
            raise RunRefused("run_in_progress", expected="no run in this session")
        if self.state != COLLECTING:
            raise RunRefused(
                "run_session_used",
                expected="a fresh session",
                hint="grant again: that begins a new session",
            )
        lacking = self.missing(uploaded)
        if lacking:
            raise RunRefused("run_not_ready", expected="nothing missing", got=", ".join(lacking))
        approvals = self.approvals(now)
        run = max(runs_spent + 1, *(grant.run for grant in self._grants.values()))
        limit = min(self.plan.max_runs, approvals.max_runs)
        if run > limit:
            raise RunRefused(
                "run_past_max",
                expected=f"at most {limit} runs",
                got=f"run {run}",
                hint="agree on a new plan",
            )
        self.state = RUNNING
        return run

    def refuse_renewal(self, role: str) -> None:
        """Refuse to end this session for `role`: during its run, or with another's grant in it.

        A grant is spent in the ledger of the party that made it: whoever could end
        the session at will could use up the other's runs one by one.

        Raises SessionRefused `session_running`, `session_granted`.
        """
        if self.state == RUNNING:
            raise SessionRefused("session_running", expected="a session without a run")
        others = [grant.artifact for grant in self._grants.values() if grant.role != role]
        if self.state == COLLECTING and others:
            raise SessionRefused(
                "session_granted",
                expected="a session without a grant of another party",
                got=f"grant of {others[0]}",
                hint="grant your part and start the run",
            )

    def finish(self) -> None:
        """The run released its result."""
        self._end(FINISHED)

    def refuse(self) -> None:
        """The run ended without a result."""
        self._end(REFUSED)

    def approvals(self, now: datetime) -> Approvals:
        """Both approvals, verified again at `now`."""
        envelopes = [approval.envelope for approval in self._approvals.values()]
        return verify_approvals(envelopes, self.plan, now)

    @property
    def approved_by(self) -> tuple[str, ...]:
        """Roles whose approval is in."""
        return tuple(role for role in APPROVING_ROLES if role in self._approvals)

    @property
    def granted(self) -> tuple[str, ...]:
        """Artifacts whose key is in."""
        return tuple(artifact for artifact in ARTIFACTS if artifact in self._grants)

    @property
    def party_evidence(self) -> Mapping[str, PartyEvidence]:
        """Accepted evidence of the parties, by role."""
        return dict(self._party_evidence)

    def granted_evidence(self) -> tuple[SessionEvidence, ...]:
        """The evidence each party granted on, in the order of the approving roles."""
        chosen = {
            ARTIFACT_OWNER[grant.artifact]: self._evidence[grant.role][grant.evidence]
            for grant in self._grants.values()
        }
        return tuple(chosen[role] for role in APPROVING_ROLES if role in chosen)

    def _end(self, state: str) -> None:
        if self.state != RUNNING:
            raise RunRefused("run_not_running", expected="a run in this session")
        self.state = state

    def _refuse_unless_collecting(self, what: str) -> None:
        if self.state != COLLECTING:
            raise SessionRefused(
                "session_closed",
                expected=f"no {what} after the run began",
                got=self.state,
                hint="grant again: that begins a new session",
            )
