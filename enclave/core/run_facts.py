"""Run facts: the predicate of a receipt, closed (docs/spec/receipt.md).

It has no field for a score, a completion or an outcome of one item, so a
receipt that carries one does not parse.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from enclave.core.binding import (
    BindingInputs,
    party_binding,
)
from enclave.core.plan import Plan

PASSED = "pass"


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@dataclass(frozen=True)
class SessionKeys:
    """What the session spoke with: hash of its TLS key, HPKE key (1216 bytes), receipt key (SPKI).

    tls_spki_sha256: 32 bytes.
    """

    tls_spki_sha256: bytes
    hpke_key: bytes
    signing_key: bytes


@dataclass(frozen=True)
class SessionEvidence:
    """Evidence that one verifier asked for with its own nonce (32 bytes)."""

    label: str
    nonce: bytes
    evidence: bytes


@dataclass(frozen=True)
class PartyEvidence:
    """Evidence that a party showed over the workload's challenge (32 bytes)."""

    role: str
    challenge: bytes
    evidence: bytes


@dataclass(frozen=True)
class IsolationFacts:
    """The tier in force, the digest of its profile, and the probes that tried to break it."""

    tier: str
    profile_digest: str
    probes_tried: int
    probes_refused: int


@dataclass(frozen=True)
class WipeFacts:
    """What was overwritten, read back as zero, and closed."""

    files: int
    bytes: int


@dataclass(frozen=True)
class SealedRelease:
    """Digest (hex) and size of the sealed bytes of one view for one role."""

    view: str
    role: str
    sha256: str
    size: int


@dataclass(frozen=True)
class RunFacts:
    """Everything a receipt states about one run.

    approvals: envelopes of the model owner and the evaluator, in this order.
    engine: facts of the model host, as text.  controls: ids, all of them passed.
    bits: what the run could release at most.  Slots: starts of time slots.
    """

    plan: Plan
    session: str
    run: int
    keys: SessionKeys
    approvals: tuple[bytes, ...]
    evidence: tuple[SessionEvidence, ...]
    party_evidence: tuple[PartyEvidence, ...]
    engine: Mapping[str, str]
    isolation: IsolationFacts
    controls: tuple[str, ...]
    completed: int
    failed: int
    wipe: WipeFacts
    releases: tuple[SealedRelease, ...]
    bits: int
    runs_spent: int
    started_slot: str
    finished_slot: str

    def binding_inputs(self, label: str, nonce: bytes) -> BindingInputs:
        """What evidence over one nonce has to bind."""
        return BindingInputs(
            plan=self.plan.digest,
            session=self.session,
            tls_spki_sha256=self.keys.tls_spki_sha256,
            hpke_key=self.keys.hpke_key,
            signing_key=self.keys.signing_key,
            nonces=((label, nonce),),
        )

    def party_binding(self, entry: PartyEvidence) -> bytes:
        """What a party's evidence has to bind: 64 bytes."""
        signing_key = self.plan.party(entry.role).signing_key
        return party_binding(
            self.plan.digest, self.session, entry.role, signing_key, entry.challenge
        )

    def to_json(self) -> dict[str, Any]:
        """The predicate as a JSON object."""
        return {
            "plan": _b64(self.plan.to_bytes()),
            "session": self.session,
            "run": self.run,
            "keys": {
                "tls_spki_sha256": self.keys.tls_spki_sha256.hex(),
                "hpke_key": _b64(self.keys.hpke_key),
                "signing_key": _b64(self.keys.signing_key),
            },
            "approvals": [_b64(envelope) for envelope in self.approvals],
            "evidence": [
                {"label": e.label, "nonce": e.nonce.hex(), "evidence": _b64(e.evidence)}
                for e in self.evidence
            ],
            "party_evidence": [
                {"role": e.role, "challenge": e.challenge.hex(), "evidence": _b64(e.evidence)}
                for e in self.party_evidence
            ],
            "policies": {
                "attestation_policy": self.plan.attestation_policy,
                "reference_values": self.plan.reference_values,
                "result_policy": self.plan.result_policy,
            },
            "engine": dict(self.engine),
            "isolation": {
                "tier": self.isolation.tier,
                "profile_digest": self.isolation.profile_digest,
                "probes_tried": self.isolation.probes_tried,
                "probes_refused": self.isolation.probes_refused,
            },
            "controls": dict.fromkeys(self.controls, PASSED),
            "samples": {"completed": self.completed, "failed": self.failed},
            "wipe": {"files": self.wipe.files, "bytes": self.wipe.bytes, "verified": True},
            "releases": [
                {"view": r.view, "role": r.role, "sha256": r.sha256, "size": r.size}
                for r in self.releases
            ],
            "bits": self.bits,
            "runs_spent": self.runs_spent,
            "started_slot": self.started_slot,
            "finished_slot": self.finished_slot,
        }
