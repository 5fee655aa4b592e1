"""What crosses the channel, as domain types.

The workload's facade returns these and the clients receive them; protobuf stays
inside `enclave.wire`.  Digests are lower hex, keys and nonces are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from attestation.errors import Check, Finding
from enclave.core.sealed.stream import SEGMENT_BYTES

SERVER_NAME = "enclave.invalid"
"""The one DNS name in every server certificate; RFC 6761 reserves `.invalid`."""

ACKNOWLEDGE_BYTES = 16 * SEGMENT_BYTES
"""What is made durable and acknowledged together."""

MAX_MISSING_RUNS = 4096
"""How many runs of missing segments a status lists."""

WATCH_SECONDS = 5.0
"""A facade's `watch_run` yields at least this often, repeating itself if nothing moved."""

PROGRESS_STATES = ("running", "finished", "refused")


@dataclass(frozen=True)
class SessionView:
    """The public state of a session.

    `session` is 32 hex digits, `hpke_key` 1216 bytes, `signing_key` SPKI DER.
    `approvals` and `party_evidence` name roles, `grants` names artifacts, and
    `missing` lists what the next run still waits for, in plain identifiers such
    as `approval:evaluator`, `upload:model`, `grant:suite`.  `last_run` is 0
    before the first run.
    """

    session: str
    state: str
    plan_digest: str
    tls_spki_sha256: bytes
    hpke_key: bytes
    signing_key: bytes
    approvals: tuple[str, ...]
    grants: tuple[str, ...]
    party_evidence: tuple[str, ...]
    missing: tuple[str, ...]
    party_challenge: bytes
    runs_spent: int
    max_runs: int
    last_run: int
    tier: str


@dataclass(frozen=True)
class AttestReply:
    """Evidence over the caller's nonce, and the keys that it binds."""

    session: str
    evidence: bytes
    tls_spki_sha256: bytes
    hpke_key: bytes
    signing_key: bytes


@dataclass(frozen=True)
class Progress:
    """One step of a run: a stage, counts and a state, never content.

    `state` is `running`, `finished` or `refused`; `refusal` is the flat
    `Refusal.as_json()` of a refused run.
    """

    stage: str
    done: int
    total: int
    state: str
    refusal: Mapping[str, str] | None = None


@dataclass(frozen=True, order=True)
class SegmentRun:
    """`count` consecutive segments of one stream, from `first`."""

    stream: int
    first: int
    count: int


@dataclass(frozen=True)
class UploadStatus:
    """What of an artifact is durable in the workload's store.

    Before the first upload `index_sha256` is empty and `total_segments` 0.
    `missing` lists the first runs of missing segments, at most `MAX_MISSING_RUNS`;
    `missing_segments` and `missing_bytes` count all of them.
    """

    artifact: str
    index_sha256: str
    total_segments: int
    total_bytes: int
    missing_segments: int
    missing_bytes: int
    missing: tuple[SegmentRun, ...]

    @property
    def is_complete(self) -> bool:
        return self.total_segments > 0 and self.missing_segments == 0


@dataclass(frozen=True)
class UploadAcknowledged:
    """Segments that just became durable, and how many are missing still."""

    durable: tuple[SegmentRun, ...]
    missing_segments: int


@dataclass(frozen=True)
class UploadReport:
    """What one `upload_artifact` call did; `bytes` are ciphertext bytes sent."""

    sent_segments: int
    skipped_segments: int
    bytes: int


@dataclass(frozen=True)
class RefusalDetail:
    """A refusal in full: of the protocol, or of attestation with its findings and checks.

    `attestation_stage` is empty for a refusal of the protocol.
    """

    stage: str
    code: str
    expected: str = ""
    got: str = ""
    hint: str = ""
    attestation_stage: str = ""
    findings: tuple[Finding, ...] = field(default=())
    checks: tuple[Check, ...] = field(default=())
