"""A real server with a facade in memory, real TLS on loopback, and real parties."""

from __future__ import annotations

import datetime as dt
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import load_der_x509_certificate

from attestation.errors import AttestationError
from enclave.clients.channel.bootstrap import fetch_server_certificate
from enclave.clients.channel.client import EnclaveClient, Timeouts
from enclave.core.canonical import print_canonical
from enclave.core.errors import Refusal
from enclave.core.plan import Plan, parse_plan
from enclave.core.sealed.stream import SEGMENT_BYTES
from enclave.core.vocabulary import SEALED_ARTIFACT_TYPE
from enclave.wire.messages import AttestReply, Progress, SessionView
from enclave.workload.service.identity import ServerIdentity, make_server_identity
from enclave.workload.service.server import RunningServer, serve_enclave
from enclave.workload.service.upload_store import UploadStore, open_upload_store
from tests.core.builders import PartyKeys, demo_policy, make_party, plan_json

SESSION = "ab" * 16
COMMITMENTS = {"model": "11" * 32, "suite": "22" * 32, "bundle": "33" * 32}


@dataclass(frozen=True)
class WireWorld:
    """One party a role, a stranger, and a plan."""

    owner: PartyKeys
    evaluator: PartyKeys
    reviewer: PartyKeys
    auditor: PartyKeys
    stranger: PartyKeys
    plan: Plan

    @property
    def parties(self) -> dict[str, PartyKeys]:
        return {
            keys.role: keys for keys in (self.owner, self.evaluator, self.reviewer, self.auditor)
        }

    def edited_plan(self, **changes: object) -> Plan:
        document = self.plan.to_json()
        document.update(changes)
        return parse_plan(print_canonical(document))


def make_wire_world() -> WireWorld:
    keys = [
        make_party(role, name)
        for role, name in (
            ("model_owner", "Owner"),
            ("evaluator", "Evaluator"),
            ("reviewer", "Reviewer"),
            ("auditor", "Auditor"),
        )
    ]
    document = plan_json([each.party for each in keys], demo_policy().digest)
    document["model"]["max_bytes"] = 4 * 1024**3
    return WireWorld(
        *keys, make_party("evaluator", "Stranger"), parse_plan(print_canonical(document))
    )


@dataclass
class MemoryFacade:
    """A facade that remembers what it was asked. `refusals` are raised by method name."""

    store_root: Path
    registered: dict[str, Plan] = field(default_factory=dict)
    asked: list[tuple[object, ...]] = field(default_factory=list)
    refusals: dict[str, Exception] = field(default_factory=dict)
    stores: dict[tuple[str, str], UploadStore] = field(default_factory=dict)
    progress: list[Progress] = field(default_factory=list)
    watching: threading.Event = field(default_factory=threading.Event)
    watch_until: threading.Event = field(default_factory=threading.Event)

    def _note(self, name: str, *facts: object) -> None:
        self.asked.append((name, *facts))
        if name in self.refusals:
            raise self.refusals[name]

    def plans(self) -> Mapping[str, Plan]:
        return self.registered

    def view_session(self, plan: str) -> SessionView:
        self._note("view_session", plan)
        return SessionView(
            SESSION, "waiting", plan, b"t" * 32, b"h" * 1216, b"s" * 91,
            ("model_owner",), ("suite",), (), ("approval:evaluator", "upload:model"),
            b"c" * 32, 1, 3, 1, "T1",
        )  # fmt: skip

    def attest(self, plan: str, role: str, nonce: bytes) -> AttestReply:
        self._note("attest", plan, role, nonce)
        return AttestReply(SESSION, b"evidence of " + nonce, b"t" * 32, b"h" * 1216, b"s" * 91)

    def submit_approval(self, plan: str, role: str, envelope: bytes) -> None:
        self._note("submit_approval", plan, role, envelope)

    def submit_party_evidence(self, plan: str, role: str, evidence: bytes) -> str:
        self._note("submit_party_evidence", plan, role, evidence)
        return "cd" * 32

    def upload_store(self, plan: str, artifact: str) -> UploadStore:
        key = (plan, artifact)
        if key not in self.stores:
            self.stores[key] = open_upload_store(self.store_root, self.registered[plan], artifact)
        return self.stores[key]

    def artifact_uploaded(self, plan: str, artifact: str) -> None:
        self._note("artifact_uploaded", plan, artifact)

    def submit_grant(self, plan: str, role: str, grant: bytes) -> None:
        self._note("submit_grant", plan, role, grant)

    def start_run(self, plan: str, role: str) -> int:
        self._note("start_run", plan, role)
        return 1

    def watch_run(self, plan: str, run: int) -> Iterator[Progress]:
        self._note("watch_run", plan, run)
        yield from self.progress
        self.watching.set()
        while self.progress and self.progress[-1].state == "running":
            if self.watch_until.wait(0.1):
                return
            yield self.progress[-1]

    def release(self, plan: str, role: str, run: int, view: str) -> bytes:
        self._note("release", plan, role, run, view)
        return b"sealed to " + role.encode()

    def receipt(self, plan: str, run: int) -> bytes:
        self._note("receipt", plan, run)
        return b"receipt"

    def renew_session(self, plan: str, role: str) -> None:
        self._note("renew_session", plan, role)


class Enclave:
    """A running server on a free loopback port."""

    def __init__(
        self,
        world: WireWorld,
        store_root: Path,
        *,
        production: bool = True,
        identity: ServerIdentity | None = None,
        listen: str = "127.0.0.1:0",
    ) -> None:
        self.world = world
        self.facade = MemoryFacade(store_root, {world.plan.digest: world.plan})
        self.identity = identity or make_server_identity(dt.datetime.now(dt.UTC))
        self.server: RunningServer = serve_enclave(
            self.facade, self.identity, listen, production=production
        )
        self.endpoint = f"127.0.0.1:{self.server.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.facade.watch_until.set()
        self.server.stop(0)

    def client(
        self,
        keys: PartyKeys,
        *,
        plan: str | None = None,
        certificate: bytes | None = None,
    ) -> EnclaveClient:
        return EnclaveClient(
            self.endpoint,
            fetch_server_certificate(self.endpoint, 10),
            client_key_pem=key_pem(keys),
            client_certificate_pem=certificate or certificate_pem(keys),
            plan=plan or self.world.plan.digest,
            timeouts=Timeouts(20, 120),
        )


def key_pem(keys: PartyKeys) -> bytes:
    return keys.tls_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def certificate_pem(keys: PartyKeys) -> bytes:
    return load_der_x509_certificate(keys.tls_certificate).public_bytes(Encoding.PEM)


def write_sealed_directory(directory: Path, artifact: str, streams: list[int]) -> bytes:
    """Random bytes in the shape of a sealed artifact; nothing on the way may look inside."""
    directory.mkdir(parents=True)
    for number, size in enumerate(streams):
        with (directory / f"{number:08d}.sealed").open("wb") as file:
            for start in range(0, size, SEGMENT_BYTES):
                file.write(os.urandom(min(SEGMENT_BYTES, size - start)))
    index = print_canonical(
        {
            "type": SEALED_ARTIFACT_TYPE,
            "artifact": artifact,
            "commitment": COMMITMENTS[artifact],
            "streams": streams,
        }
    )
    (directory / "index.json").write_bytes(index)
    return index


def outcome(action: object) -> str:
    """What a call ended with: `ok`, or the code of its refusal."""
    try:
        action()  # type: ignore[operator]
    except (Refusal, AttestationError) as refusal:
        return refusal.code
    return "ok"
