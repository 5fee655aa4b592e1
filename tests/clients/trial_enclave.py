"""An enclave for the clients' tests: real TLS, sessions, evidence, grants, gate and receipts.

Only the middle of a run is missing: instead of a model and a sandbox, a fixed
result frame goes to the release functions.
"""

from __future__ import annotations

import enclave.wire  # noqa: F401 # isort: skip -- first: it prepares gRPC's environment

import json
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric import ec

from attestation.appraise import appraise_evidence, parse_policy, parse_reference_values
from attestation.collect import SimulatedAttester
from attestation.parse.trust_roots import parse_trust_roots
from attestation.types import TrustRoots
from attestation.verify import parse_evidence_bundle, verify_evidence
from enclave.clients.party.plan_directory import PlanDirectory
from enclave.core.approval import verify_approval
from enclave.core.binding import compute_binding, party_binding
from enclave.core.budget import compute_budget
from enclave.core.canonical import digest_bytes
from enclave.core.errors import Refusal, RunRefused, SessionRefused
from enclave.core.grant import open_grant, parse_grant
from enclave.core.hpke import SEAL_OVERHEAD, generate_private, public_bytes
from enclave.core.plan import Plan
from enclave.core.receipt import (
    build_receipt_statement,
    close_receipt,
    closing_inputs,
    sign_receipt,
)
from enclave.core.release import SealedView, parse_result, release_result, seal_release
from enclave.core.result_policy import parse_result_policy
from enclave.core.run_facts import (
    IsolationFacts,
    PartyEvidence,
    RunFacts,
    SealedRelease,
    SessionKeys,
    WipeFacts,
)
from enclave.core.session import AcceptedGrant, Session
from enclave.core.signing_key import print_signing_key
from enclave.core.times import print_slot
from enclave.core.vocabulary import ARTIFACTS
from enclave.wire.messages import AttestReply, Progress, SessionView
from enclave.workload.service.identity import make_server_identity
from enclave.workload.service.server import serve_enclave
from enclave.workload.service.upload_store import UploadStore, open_upload_store
from tests.clients.world import MEASUREMENT

GOOD_RESULT = {
    "metrics": {
        "accuracy": {"value": "0.537", "n": 100},
        "naive": {"value": "0.25", "n": 100},
    },
    "controls": {"oracle": "1"},
    "completed": 100,
    "failed": 0,
}


def make_attester() -> SimulatedAttester:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SimulatedAttester(MEASUREMENT)


class TrialFacade:
    """One plan, one session at a time."""

    def __init__(
        self, directory: PlanDirectory, store: Path, attester: SimulatedAttester, spki_sha256: bytes
    ) -> None:
        self.directory = directory
        self.attester = attester
        self.party_roots: TrustRoots = parse_trust_roots()
        self.result: object = GOOD_RESULT
        self.reported_spki = spki_sha256
        self.grants_seen: list[bytes] = []
        self.before_grant = threading.Event()
        self.before_grant.set()
        self._spki = spki_sha256
        self._stores = {name: open_upload_store(store, directory.plan, name) for name in ARTIFACTS}
        self._runs: dict[int, tuple[list[Progress], tuple[SealedView, ...], bytes]] = {}
        self._spent = 0
        self._open()

    def _open(self) -> None:
        self._private = generate_private()
        self._signing_key = ec.generate_private_key(ec.SECP256R1())
        keys = SessionKeys(
            self._spki,
            public_bytes(self._private),
            print_signing_key(self._signing_key.public_key()),
        )
        self.state = Session(self.directory.plan, os.urandom(16).hex(), keys, os.urandom(32))

    def plans(self) -> Mapping[str, Plan]:
        return {self.directory.plan.digest: self.directory.plan}

    def _uploaded(self) -> frozenset[str]:
        return frozenset(n for n, store in self._stores.items() if store.status().is_complete)

    def view_session(self, plan: str) -> SessionView:
        state = self.state
        return SessionView(
            session=state.session,
            state=state.state,
            plan_digest=plan,
            tls_spki_sha256=self._spki,
            hpke_key=state.keys.hpke_key,
            signing_key=state.keys.signing_key,
            approvals=state.approved_by,
            grants=state.granted,
            party_evidence=tuple(sorted(state.party_evidence)),
            missing=state.missing(self._uploaded()),
            party_challenge=state.challenge,
            runs_spent=self._spent,
            max_runs=self.directory.plan.max_runs,
            last_run=max(self._runs, default=0),
            tier="T2",
        )

    def attest(self, plan: str, role: str, nonce: bytes) -> AttestReply:
        inputs = self.state.accept_nonce(role, nonce)
        evidence = self.attester.collect_evidence(compute_binding(inputs)).to_bytes()
        self.state.record_evidence(role, nonce, evidence)
        keys = self.state.keys
        return AttestReply(
            self.state.session, evidence, self.reported_spki, keys.hpke_key, keys.signing_key
        )

    def submit_approval(self, plan: str, role: str, envelope: bytes) -> None:
        now = datetime.now(UTC)
        self.state.accept_approval(verify_approval(envelope, self.directory.plan, now), now)

    def submit_party_evidence(self, plan: str, role: str, evidence: bytes) -> str:
        demand = self.directory.plan.party_evidence[role]
        if demand is None:
            raise SessionRefused("party_evidence_unasked")
        now = datetime.now(UTC)
        bundle = parse_evidence_bundle(evidence)
        appraise_evidence(
            verify_evidence(bundle, roots=self.party_roots, now=now),
            policy=parse_policy(self.directory.documents[demand.policy]),
            reference_values=parse_reference_values(
                self.directory.documents[demand.reference_values]
            ),
            expected_binding=party_binding(
                plan,
                self.state.session,
                role,
                self.directory.plan.party(role).signing_key,
                self.state.challenge,
            ),
            now=now,
        )
        self.state.accept_party_evidence(PartyEvidence(role, self.state.challenge, evidence))
        return bundle.digest

    def upload_store(self, plan: str, artifact: str) -> UploadStore:
        return self._stores[artifact]

    def artifact_uploaded(self, plan: str, artifact: str) -> None:
        pass

    def submit_grant(self, plan: str, role: str, grant: bytes) -> None:
        self.before_grant.wait(30)
        self.grants_seen.append(grant)
        parsed = parse_grant(grant)
        self.state.refuse_grant(role, parsed.evidence, digest_bytes(grant))
        opened = open_grant(
            grant,
            private_key=self._private,
            plan=plan,
            session=self.state.session,
            evidence_digest=parsed.evidence,
            role=role,
            artifact=parsed.artifact,
            commitment=self.directory.plan.artifact(parsed.artifact).commitment,
            max_runs=self.directory.plan.max_runs,
        )
        self.state.accept_grant(
            AcceptedGrant(parsed.artifact, role, parsed.evidence, opened.run, digest_bytes(grant))
        )

    def start_run(self, plan: str, role: str) -> int:
        now = datetime.now(UTC)
        run = self.state.begin_run(self._uploaded(), self._spent, now)
        self._spent = run
        steps = [Progress("open", 3, 3, "running"), Progress("sample", 100, 100, "running")]
        try:
            views, receipt = self._finish(run, now)
        except Refusal as refusal:
            self.state.refuse()
            steps.append(Progress("refused", 1, 1, "refused", refusal.as_json()))
            self._runs[run] = (steps, (), b"")
        else:
            self.state.finish()
            steps.append(Progress("finished", 1, 1, "finished"))
            self._runs[run] = (steps, views, receipt)
        return run

    def _finish(self, run: int, now: datetime) -> tuple[tuple[SealedView, ...], bytes]:
        plan = self.directory.plan
        policy = parse_result_policy(self.directory.result_policy)
        parsed = parse_result(json.dumps(self.result).encode(), plan, policy)
        slot = print_slot(now, policy.slot_seconds)
        released = release_result(
            parsed, plan=plan, policy=policy, session=self.state.session, run=run, slot=slot
        )
        views = seal_release(released, plan=plan, policy=policy)
        facts = RunFacts(
            plan=plan,
            session=self.state.session,
            run=run,
            keys=self.state.keys,
            approvals=self.state.approvals(now).envelopes,
            evidence=self.state.granted_evidence(),
            party_evidence=tuple(self.state.party_evidence.values()),
            engine={"kernel": "none"},
            isolation=IsolationFacts("T2", "cd" * 32, 24, 24),
            controls=("oracle",),
            completed=parsed.completed,
            failed=parsed.failed,
            wipe=WipeFacts(3, 4096),
            releases=tuple(
                SealedRelease(v.view, v.role, v.digest, policy.release_bytes + SEAL_OVERHEAD)
                for v in views
            ),
            bits=compute_budget(plan, policy).bits_per_run,
            runs_spent=run,
            started_slot=slot,
            finished_slot=slot,
        )
        statement = build_receipt_statement(facts)
        envelope = sign_receipt(statement, self._signing_key)
        closing = self.attester.collect_evidence(compute_binding(closing_inputs(facts, statement)))
        return views, close_receipt(envelope, closing.to_bytes())

    def watch_run(self, plan: str, run: int) -> Iterator[Progress]:
        return iter(self._known(run)[0])

    def release(self, plan: str, role: str, run: int, view: str) -> bytes:
        for sealed in self._known(run)[1]:
            if (sealed.view, sealed.role) == (view, role):
                return sealed.sealed
        raise SessionRefused("view_unknown", expected="a view of the plan")

    def receipt(self, plan: str, run: int) -> bytes:
        receipt = self._known(run)[2]
        if not receipt:
            raise SessionRefused("run_unknown", expected="a finished run")
        return receipt

    def _known(self, run: int) -> tuple[list[Progress], tuple[SealedView, ...], bytes]:
        if run not in self._runs:
            raise SessionRefused("run_unknown", expected="a finished run")
        return self._runs[run]

    def renew_session(self, plan: str, role: str) -> None:
        if self.state.state == "running":
            raise RunRefused("run_in_progress")
        self._open()


class TrialEnclave:
    """The facade behind the real server, on a free loopback port."""

    def __init__(
        self, directory: PlanDirectory, store: Path, attester: SimulatedAttester | None = None
    ) -> None:
        self.attester = attester or make_attester()
        identity = make_server_identity(datetime.now(UTC))
        self.facade = TrialFacade(directory, store, self.attester, identity.spki_sha256)
        self._server = serve_enclave(self.facade, identity, "127.0.0.1:0", production=True)
        self.endpoint = f"127.0.0.1:{self._server.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0)
