"""The broker behind the network: sessions of every plan, and what each call does to them.

Implements `enclave.workload.service.facade.EnclaveFacade`.  One lock a plan;
a run works in its own thread and takes the lock only to change state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from attestation.appraise import appraise_evidence
from attestation.parse.bundle import parse_evidence_bundle
from attestation.types import TrustRoots
from attestation.verify import verify_evidence
from enclave.core.approval import verify_approval
from enclave.core.binding import compute_binding, party_binding
from enclave.core.errors import ApprovalRefused, Refusal, SessionRefused
from enclave.core.plan import Plan
from enclave.core.run_facts import PartyEvidence
from enclave.core.vocabulary import ARTIFACTS
from enclave.wire.messages import AttestReply, Progress, SessionView
from enclave.workload.broker.archive import PlanArchive
from enclave.workload.broker.board import ProgressBoard
from enclave.workload.broker.live_session import LiveSession
from enclave.workload.broker.plans import LoadedPlan
from enclave.workload.broker.run import Surroundings, execute_run
from enclave.workload.service.upload_store import UploadStore


@dataclass
class PlanDesk:
    """All of one plan: its stores, its archive, its live session and the boards of its runs."""

    loaded: LoadedPlan
    around: Surroundings
    live: LiveSession
    boards: dict[int, ProgressBoard] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def stores(self) -> Mapping[str, UploadStore]:
        return self.around.stores

    @property
    def archive(self) -> PlanArchive:
        return self.around.archive


class Broker:
    """Sessions by plan digest."""

    def __init__(
        self,
        desks: Mapping[str, PlanDesk],
        *,
        renew: Callable[[LoadedPlan], LiveSession],
        party_roots: TrustRoots,
    ) -> None:
        self._desks = dict(desks)
        self._plans = {digest: desk.loaded.plan for digest, desk in self._desks.items()}
        self._renew = renew
        self._party_roots = party_roots
        for desk in self._desks.values():
            _recall_approvals(desk)

    def plans(self) -> Mapping[str, Plan]:
        """Every registered plan by digest."""
        return self._plans

    def view_session(self, plan: str) -> SessionView:
        """The session's public state."""
        desk = self._desk(plan)
        uploaded = _uploaded(desk)
        with desk.lock:
            state = desk.live.state
            return SessionView(
                session=state.session,
                state=state.state,
                plan_digest=plan,
                tls_spki_sha256=state.keys.tls_spki_sha256,
                hpke_key=state.keys.hpke_key,
                signing_key=state.keys.signing_key,
                approvals=state.approved_by,
                grants=state.granted,
                party_evidence=tuple(sorted(state.party_evidence)),
                missing=state.missing(uploaded),
                party_challenge=state.challenge,
                runs_spent=desk.archive.spent_runs(),
                max_runs=desk.loaded.plan.max_runs,
                last_run=max(desk.archive.last_finished_run(), *desk.boards, 0),
                tier=desk.live.isolation.tier,
            )

    def attest(self, plan: str, role: str, nonce: bytes) -> AttestReply:
        """Evidence over the caller's nonce."""
        desk = self._desk(plan)
        with desk.lock:
            state = desk.live.state
            inputs = state.accept_nonce(role, nonce)
            evidence = desk.around.attester.collect_evidence(compute_binding(inputs)).to_bytes()
            state.record_evidence(role, nonce, evidence)
            keys = state.keys
            return AttestReply(
                state.session, evidence, keys.tls_spki_sha256, keys.hpke_key, keys.signing_key
            )

    def submit_approval(self, plan: str, role: str, envelope: bytes) -> None:
        """Verify the caller's approval and take it."""
        desk = self._desk(plan)
        now = desk.around.now()
        desk.loaded.plan.refuse_expired(now)
        approval = verify_approval(envelope, desk.loaded.plan, now)
        if approval.role != role:
            raise ApprovalRefused("approval_role_mismatch", expected=role, got=approval.role)
        with desk.lock:
            desk.live.state.accept_approval(approval, now)
            desk.archive.keep_approval(role, envelope)

    def submit_party_evidence(self, plan: str, role: str, evidence: bytes) -> str:
        """Verify and appraise the caller's own evidence under what the plan pins for it."""
        desk = self._desk(plan)
        demand = desk.loaded.demands.get(role)
        if demand is None:
            raise SessionRefused("party_evidence_unasked", expected=f"no evidence of {role}")
        bundle = parse_evidence_bundle(evidence)
        now = desk.around.now()
        with desk.lock:
            state = desk.live.state
            expected = party_binding(
                plan,
                state.session,
                role,
                desk.loaded.plan.party(role).signing_key,
                state.challenge,
            )
            asked = desk.loaded.plan.party_evidence[role]
            if asked is None or set(bundle.kinds) != {asked.kind}:
                raise SessionRefused(
                    "party_evidence_kind",
                    expected=asked.kind if asked else "none",
                    got=", ".join(sorted(set(bundle.kinds))),
                )
            verified = verify_evidence(bundle, roots=self._party_roots, now=now)
            appraise_evidence(
                verified,
                policy=demand.policy,
                reference_values=demand.reference_values,
                expected_binding=expected,
                now=now,
            )
            state.accept_party_evidence(PartyEvidence(role, state.challenge, evidence))
        return bundle.digest

    def upload_store(self, plan: str, artifact: str) -> UploadStore:
        """The ciphertext store of an artifact."""
        if artifact not in ARTIFACTS:
            raise SessionRefused("artifact_unknown", expected=" or ".join(ARTIFACTS))
        return self._desk(plan).stores[artifact]

    def artifact_uploaded(self, plan: str, artifact: str) -> None:
        """Nothing to do: completeness is read from the store, which survives a restart."""

    def submit_grant(self, plan: str, role: str, grant: bytes) -> None:
        """Open the caller's grant and keep its key until the run."""
        desk = self._desk(plan)
        with desk.lock:
            desk.live.take_grant(role, grant)

    def start_run(self, plan: str, role: str) -> int:  # noqa: ARG002 - either party may
        """Begin the run in its own thread."""
        desk = self._desk(plan)
        uploaded = _uploaded(desk)
        with desk.lock:
            live = desk.live
            now = desk.around.now()
            live.run = live.state.begin_run(uploaded, desk.archive.spent_runs(), now)
            board = desk.boards[live.run] = ProgressBoard()
            live.board = board
        worker = threading.Thread(
            target=execute_run, args=(live, board, desk.around), name=f"run-{live.run}", daemon=True
        )
        worker.start()
        return live.run

    def watch_run(self, plan: str, run: int) -> Iterator[Progress]:
        """Progress until the run ends."""
        desk = self._desk(plan)
        with desk.lock:
            board = desk.boards.get(run)
        if board is None:
            # Raises run_unknown unless it finished before this broker started.
            desk.archive.receipt(run)
            return iter((Progress("finished", 1, 1, "finished"),))
        return board.watch()

    def release(self, plan: str, role: str, run: int, view: str) -> bytes:
        """The view sealed to the caller's role."""
        desk = self._desk(plan)
        if role not in desk.loaded.plan.views.get(view, ()):
            raise SessionRefused("view_forbidden", expected=f"a view of the plan for {role}")
        return desk.archive.view(run, view, role)

    def receipt(self, plan: str, run: int) -> bytes:
        """The receipt of a finished run."""
        return self._desk(plan).archive.receipt(run)

    def renew_session(self, plan: str, role: str) -> None:
        """Begin anew: new keys, new evidence, new grants; approvals and uploads stay."""
        desk = self._desk(plan)
        with desk.lock:
            desk.live.state.refuse_renewal(role)
            old, desk.live = desk.live, self._renew(desk.loaded)
            old.close()
            _recall_approvals(desk)

    def close(self) -> None:
        """End every session."""
        for desk in self._desks.values():
            desk.live.close()
            for store in desk.stores.values():
                store.close()

    def _desk(self, plan: str) -> PlanDesk:
        desk = self._desks.get(plan)
        if desk is None:
            raise SessionRefused("plan_unknown", expected="a plan of this workload")
        return desk


def _uploaded(desk: PlanDesk) -> frozenset[str]:
    return frozenset(name for name, store in desk.stores.items() if store.status().is_complete)


def _recall_approvals(desk: PlanDesk) -> None:
    """Approvals from before a restart, verified anew; what no longer holds is asked for again."""
    now = desk.around.now()
    for role, envelope in desk.archive.kept_approvals():
        try:
            approval = verify_approval(envelope, desk.loaded.plan, now)
            if approval.role == role:
                desk.live.state.accept_approval(approval, now)
        except Refusal:
            continue
