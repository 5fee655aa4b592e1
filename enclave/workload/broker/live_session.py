"""A session as it lives in the broker: state, decryption key, gate and granted keys."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from enclave.core.canonical import digest_bytes
from enclave.core.grant import open_grant, parse_grant
from enclave.core.hpke import RecipientPrivateKey, generate_private, public_bytes
from enclave.core.run_facts import IsolationFacts, SessionKeys
from enclave.core.session import AcceptedGrant, Session
from enclave.core.vocabulary import SESSION_SIZE
from enclave.workload.broker.board import ProgressBoard
from enclave.workload.broker.gate_client import GateClient
from enclave.workload.broker.plans import LoadedPlan
from enclave.workload.memory.secret_key import SecretKey

_CHALLENGE_SIZE = 32


@dataclass(frozen=True, repr=False)
class GrantedKey:
    """An artifact key, locked and wipeable, and its commitment salt (32 bytes)."""

    key: SecretKey
    salt: bytes


@dataclass(repr=False)
class LiveSession:
    """Everything of one session; secrets live here and nowhere else in the broker."""

    loaded: LoadedPlan
    state: Session
    gate: GateClient
    isolation: IsolationFacts
    private_key: RecipientPrivateKey | None
    keys: dict[str, GrantedKey] = field(default_factory=dict)
    run: int = 0
    board: ProgressBoard | None = None

    def take_grant(self, role: str, data: bytes) -> str:
        """Open a grant of this session; returns its artifact.

        Raises DocumentRefused, GrantRefused, SessionRefused.
        """
        plan = self.loaded.plan
        parsed = parse_grant(data)
        digest = digest_bytes(data)
        self.state.refuse_foreign_grant(role, parsed)
        self.state.refuse_grant(role, parsed.evidence, digest)
        if self.private_key is None:
            raise RuntimeError("a collecting session has its key")
        opened = open_grant(
            data,
            private_key=self.private_key,
            plan=plan.digest,
            session=self.state.session,
            evidence_digest=parsed.evidence,
            role=role,
            artifact=parsed.artifact,
            commitment=plan.artifact(parsed.artifact).commitment,
            max_runs=plan.max_runs,
        )
        self.state.accept_grant(
            AcceptedGrant(parsed.artifact, role, parsed.evidence, opened.run, digest)
        )
        self.keys[parsed.artifact] = GrantedKey(SecretKey(opened.key), opened.salt)
        return parsed.artifact

    def forget_keys(self) -> None:
        """Overwrite every granted key and drop the decryption key.

        Copies inside libraries are out of reach: they are gone with the process at the latest.
        """
        self.private_key = None
        for granted in self.keys.values():
            granted.key.wipe()
        self.keys.clear()

    def close(self) -> None:
        """End the session for good."""
        self.forget_keys()
        self.gate.close()


def open_session(
    loaded: LoadedPlan,
    tls_spki_sha256: bytes,
    *,
    start_gate: Callable[[str], GateClient],
    isolation: IsolationFacts,
) -> LiveSession:
    """A fresh session: fresh HPKE key here, fresh receipt key in a fresh gate."""
    session = os.urandom(SESSION_SIZE).hex()
    gate = start_gate(session)
    try:
        signing_key = gate.open(session, loaded.plan, loaded.result_policy)
        private_key = generate_private()
        keys = SessionKeys(tls_spki_sha256, public_bytes(private_key), signing_key)
        state = Session(loaded.plan, session, keys, os.urandom(_CHALLENGE_SIZE))
    except BaseException:
        gate.close()
        raise
    return LiveSession(loaded, state, gate, isolation, private_key)
