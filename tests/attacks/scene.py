"""Where attacks take place: real parties, a real plan, and workloads made for one attack each.

Keys, certificates, evidence, sealed artifacts, mTLS and files are real.  Two things are
not what production has: the attester is the simulated one, and a gate runs in a thread
instead of a confined process (`GateThreads`).
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from attestation.collect import SimulatedAttester, reference_values_for_simulated
from attestation.parse.trust_roots import parse_trust_roots
from attestation.types import TrustRoots
from enclave.clients.channel.bootstrap import fetch_server_certificate
from enclave.clients.channel.client import EnclaveClient, Timeouts
from enclave.clients.channel.upload import upload_artifact
from enclave.clients.evaluator.suite import seal_bundle, seal_suite
from enclave.clients.model_owner.model import seal_model
from enclave.clients.party.approving import approve_plan, has_approved, load_approval
from enclave.clients.party.artifacts import (
    load_card,
    load_secret,
    owned_artifacts,
    sealed_folder,
)
from enclave.clients.party.granting import GrantReport, grant_run
from enclave.clients.party.keys import PartyKeys, create_keys
from enclave.clients.party.plan_directory import PlanDirectory, write_plan_directory
from enclave.clients.party.plan_draft import LimitSettings, PlanDraft, write_plan
from enclave.clients.party.session import PartySession, open_channel, open_party_session
from enclave.clients.party.state import StateDirectory
from enclave.core.run_facts import IsolationFacts
from enclave.core.vocabulary import APPROVING_ROLES, ARTIFACTS, EVALUATOR, MODEL_OWNER
from enclave.wire.messages import Progress
from enclave.workload.broker.archive import PlanArchive
from enclave.workload.broker.facade import Broker, PlanDesk
from enclave.workload.broker.gate_client import GateClient
from enclave.workload.broker.live_session import LiveSession, open_session
from enclave.workload.broker.plans import LoadedPlan, load_plan
from enclave.workload.broker.run import Surroundings
from enclave.workload.launcher.client import LauncherClient
from enclave.workload.service.facade import EnclaveFacade
from enclave.workload.service.identity import ServerIdentity, make_server_identity
from enclave.workload.service.server import serve_enclave
from enclave.workload.service.upload_store import open_upload_store
from tests.attacks.documents import (
    MEASUREMENT,
    SECRET_TEXTS,
    UNSAFE_SIMULATED,
    result_policy,
    write_sources,
)
from tests.attacks.hosts import GateThreads, ModelHostProcess
from tests.wire.enclaves import Enclave, make_wire_world

ISOLATION = IsolationFacts("T2", "cd" * 32, 24, 24)


@dataclass(frozen=True)
class PartySide:
    """One party: its state directory and keys."""

    state: StateDirectory
    keys: PartyKeys

    @property
    def role(self) -> str:
        return self.keys.party.role


class Scene:
    """What no attack changes: the parties, their sealed artifacts, two plans, the attester."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = datetime.now(UTC).replace(microsecond=0)
        self._loaded: dict[str, LoadedPlan] = {}
        self.owner = self.make_party(MODEL_OWNER, "owner")
        self.evaluator = self.make_party(EVALUATOR, "evaluator")
        self.stranger = self.make_party(EVALUATOR, "stranger")
        sources = write_sources(root / "sources")
        seal_model(self.owner.state, sources["model"], replace=False)
        seal_suite(self.evaluator.state, sources["suite"], replace=False)
        seal_bundle(self.evaluator.state, sources["bundle"], replace=False)
        self.sources = sources
        self.identity = make_server_identity(self.now)
        self.directory = write_plan(self.draft())
        self.other_directory = write_plan(self.draft(title="Another plan of the same parties"))

    def make_party(self, role: str, name: str) -> PartySide:
        state = StateDirectory.create(self.root / name)
        return PartySide(state, create_keys(state, role=role, name=name.title(), now=self.now))

    def side(self, role: str) -> PartySide:
        return {MODEL_OWNER: self.owner, EVALUATOR: self.evaluator}[role]

    def draft(self, **changes: Any) -> PlanDraft:
        """The honest plan's draft, with fields replaced."""
        cards = {MODEL_OWNER: self.owner, EVALUATOR: self.evaluator}
        terms: dict[str, Any] = {
            "title": "Sums",
            "plan_id": b"\x07" * 16,
            "parties": [self.owner.keys.party, self.evaluator.keys.party],
            "cards": {
                artifact: load_card(side.state, artifact)
                for side in cards.values()
                for artifact in owned_artifacts(side.role)
            },
            "attestation_policy": UNSAFE_SIMULATED.read_bytes(),
            "reference_values": reference_values_for_simulated(MEASUREMENT),
            "result_policy": result_policy(),
            "max_runs": 2,
            "not_after": self.now + timedelta(days=30),
            "min_tier": "T1",
            "limits": LimitSettings(result_bytes=4096, max_samples=1000),
        }
        return PlanDraft(**{**terms, **changes})

    def attester(self, measurement: bytes = MEASUREMENT, **settings: Any) -> SimulatedAttester:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return SimulatedAttester(measurement, clock=lambda: self.now, **settings)

    @cached_property
    def genuine(self) -> SimulatedAttester:
        """The attester whose root the parties were given."""
        return self.attester()

    @cached_property
    def roots(self) -> TrustRoots:
        return parse_trust_roots(simulated=self.genuine.root_certificates())

    @cached_property
    def model_host(self) -> ModelHostProcess:
        """One process for every model attack: a host that refused is as good as new."""
        return ModelHostProcess()

    @cached_property
    def wire(self) -> Enclave:
        """A served facade in memory, with a party of every role and a stranger."""
        enclave = Enclave(make_wire_world(), self.root / "wire")
        enclave.facade.progress = [Progress("run", 1, 1, "finished")]
        return enclave

    def close(self) -> None:
        """End what was started for several attacks."""
        if "wire" in self.__dict__:
            self.__dict__.pop("wire").__exit__()
        if "model_host" in self.__dict__:
            self.__dict__.pop("model_host").close()

    def load(self, directory: PlanDirectory) -> LoadedPlan:
        """The plan as the workload reads it from its directory."""
        digest = directory.plan.digest
        if digest not in self._loaded:
            write_plan_directory(self.root / "plans" / digest, directory)
            self._loaded[digest] = load_plan(self.root / "plans" / digest)
        return self._loaded[digest]

    @cached_property
    def uploads(self) -> Path:
        """Stores that hold every artifact of the plan, uploaded over a real channel."""
        folder = self.root / "uploads"
        with open_stage(self, self.root / "uploading") as stage:
            workload = stage.workload()
            endpoint = stage.serve(workload.broker)
            for role in APPROVING_ROLES:
                client = stage.channel(role, endpoint)
                for artifact in owned_artifacts(role):
                    source = sealed_folder(self.side(role).state, artifact)
                    upload_artifact(client, self.directory.plan, artifact, source)
            shutil.copytree(workload.root / "uploads", folder)
        return folder


@dataclass
class Workload:
    """A broker of its own: real sessions, gates, stores and archive."""

    scene: Scene
    root: Path
    directories: tuple[PlanDirectory, ...]
    attester: SimulatedAttester
    now: datetime
    launcher: Any = field(default_factory=GateThreads)

    def __post_init__(self) -> None:
        self.desks = {each.plan.digest: self._open_desk(each) for each in self.directories}
        self.broker = Broker(self.desks, renew=self._open, party_roots=self.scene.roots)

    @property
    def plan(self) -> str:
        return self.directories[0].plan.digest

    @property
    def live(self) -> LiveSession:
        return self.desks[self.plan].live

    def _open(self, loaded: LoadedPlan) -> LiveSession:
        return open_session(
            loaded,
            self.scene.identity.spki_sha256,
            start_gate=lambda _: GateClient(cast("LauncherClient", self.launcher), "gate", 60),
            isolation=ISOLATION,
        )

    def _open_desk(self, directory: PlanDirectory) -> PlanDesk:
        loaded = self.scene.load(directory)
        around = Surroundings(
            launcher=cast("LauncherClient", self.launcher),
            attester=self.attester,
            archive=PlanArchive(self.root, loaded.plan.digest),
            stores={
                artifact: open_upload_store(self.root / "uploads", loaded.plan, artifact)
                for artifact in ARTIFACTS
            },
            now=lambda: self.now,
            separate_users=False,
            threads=1,
        )
        return PlanDesk(loaded, around, self._open(loaded))

    def run_to_its_end(self) -> int:
        """Start the run and wait for its end; without a sandbox it ends refused, and spent."""
        run = self.broker.start_run(self.plan, MODEL_OWNER)
        for _ in self.broker.watch_run(self.plan, run):
            pass
        return run


class Stage:
    """One attack's own place: a folder, and everything it opened closed at the end."""

    def __init__(self, scene: Scene, folder: Path, closing: ExitStack) -> None:
        self.scene = scene
        self.folder = folder
        self.closing = closing
        self._sides: dict[str, PartySide] = {}
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def trace(self) -> Path:
        """Where code of an attacker's would leave its trace, had it run."""
        return self.folder / "trace-of-an-attacker"

    def secrets(self) -> set[str]:
        """What no refusal may repeat: keys and salts, texts of prompts and of the attackers."""
        owned = ((role, name) for role in APPROVING_ROLES for name in owned_artifacts(role))
        secrets = [load_secret(self.scene.side(role).state, name) for role, name in owned]
        salts = {each.salt.hex() for each in secrets if each.artifact != "bundle"}
        return salts | {each.key.hex() for each in secrets} | set(SECRET_TEXTS)

    def side(self, role: str) -> PartySide:
        """A party with a state directory of this attack's own: ledger, approvals, secrets."""
        if role not in self._sides:
            known = self.scene.side(role)
            state = StateDirectory(shutil.copytree(known.state.root, self.folder / f"state-{role}"))
            self._sides[role] = PartySide(state, known.keys)
        return self._sides[role]

    def workload(
        self,
        *directories: PlanDirectory,
        uploaded: bool = False,
        approved: bool = False,
        attester: SimulatedAttester | None = None,
    ) -> Workload:
        """A fresh workload, of the scene's plan if no other is given, with the artifacts uploaded and the approvals in if asked for."""
        root = self.folder / f"workload-{len(list(self.folder.iterdir()))}"
        root.mkdir()
        if uploaded:
            shutil.copytree(self.scene.uploads, root / "uploads")
        plans = directories or (self.scene.directory,)
        genuine = attester or self.scene.genuine
        workload = Workload(self.scene, root, plans, genuine, self.scene.now)
        self.closing.callback(workload.broker.close)
        if approved:
            for role in APPROVING_ROLES:
                workload.broker.submit_approval(workload.plan, role, self.approval(role))
        return workload

    def approval(self, role: str, directory: PlanDirectory | None = None, **terms: Any) -> bytes:
        """The party's own approval, made and kept by its client; the kept one if no terms."""
        directory = directory or self.scene.directory
        side = self.side(role)
        if not terms and has_approved(side.state, directory.plan.digest):
            return load_approval(side.state, directory, self.scene.now).envelope
        return approve_plan(
            side.state,
            side.keys,
            directory,
            max_runs=terms.get("max_runs", directory.plan.max_runs),
            not_after=terms.get("not_after", directory.plan.not_after),
            nonce=os.urandom(32),
            now=self.scene.now,
        ).envelope

    def serve(self, facade: EnclaveFacade, identity: ServerIdentity | None = None) -> str:
        """Serve on loopback with mTLS; returns the endpoint."""
        server = serve_enclave(
            facade, identity or self.scene.identity, "127.0.0.1:0", production=True
        )
        self.closing.callback(server.stop, 0)
        return f"127.0.0.1:{server.port}"

    def channel(self, role: str, endpoint: str, certificate: bytes = b"") -> EnclaveClient:
        """The party's channel, before any evidence; `certificate` is pinned if given."""
        certificate = certificate or fetch_server_certificate(endpoint, 10)
        keys = self.side(role).keys
        client = open_channel(
            keys, self.scene.directory, endpoint, certificate, timeouts=Timeouts(20, 60)
        )
        self.closing.callback(client.close)
        return client

    def connect(
        self, role: str, endpoint: str, directory: PlanDirectory | None = None, **changes: Any
    ) -> PartySession:
        """The party's own way in: pin the certificate, demand evidence, appraise it."""
        terms: dict[str, Any] = {
            "roots": self.scene.roots,
            "policy_pin": None,
            "nonce": os.urandom(32),
            "now": self.scene.now,
            "timeouts": Timeouts(20, 60),
            **changes,
        }
        session = open_party_session(
            self.side(role).keys, directory or self.scene.directory, endpoint, **terms
        )
        self.closing.callback(session.client.close)
        return session

    def grant(self, role: str, endpoint: str) -> GrantReport:
        """The party's own grant of every artifact it owns."""
        session = self.connect(role, endpoint)
        return grant_run(self.side(role).state, session, now=self.scene.now)


@contextmanager
def open_stage(scene: Scene, folder: Path) -> Iterator[Stage]:
    with ExitStack() as closing:
        yield Stage(scene, folder, closing)
