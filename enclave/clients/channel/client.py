"""One party's calls on an enclave, in domain types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from enclave.wire.messages import (
    AttestReply,
    Progress,
    RefusalDetail,
    SessionView,
    UploadStatus,
)


@dataclass(frozen=True)
class Timeouts:
    """Deadlines in seconds: `call` for each unary call, `stream` for each stream."""

    call: float = 60.0
    stream: float = 6 * 3600.0


class EnclaveClient:
    """A channel that pins one server certificate and speaks for one party on one plan.

    `plan` is the plan's digest (64 hex digits); `client_key_pem` and
    `client_certificate_pem` are the party's mTLS pair, `server_certificate` the
    DER from `fetch_server_certificate`.  The workload's refusals are raised as
    the same `Refusal` subclass with the same code (`AttestationError` too);
    the channel's own are `ChannelRefused`: `server_certificate_changed`,
    `enclave_unreachable`, `enclave_refused_connection`, `enclave_timeout`, `enclave_busy`.
    Idempotent calls are retried with back-off while the enclave is unreachable.
    """

    def __init__(
        self,
        endpoint: str,
        server_certificate: bytes,
        *,
        client_key_pem: bytes,
        client_certificate_pem: bytes,
        plan: str,
        timeouts: Timeouts = Timeouts(),
    ) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every call and the connection."""
        raise NotImplementedError

    def get_session(self) -> SessionView:
        raise NotImplementedError

    def get_plan(self) -> bytes:
        """The plan's bytes; their SHA-256 was compared with the digest asked for."""
        raise NotImplementedError

    def attest(self, nonce: bytes) -> AttestReply:
        """Evidence over a fresh 32-byte nonce. Appraise it before anything else."""
        raise NotImplementedError

    def submit_approval(self, envelope: bytes) -> None:
        raise NotImplementedError

    def submit_party_evidence(self, evidence: bytes) -> str:
        """Answer the session's `party_challenge`; returns the evidence digest."""
        raise NotImplementedError

    def get_upload_status(self, artifact: str) -> UploadStatus:
        raise NotImplementedError

    def forget_segment(self, artifact: str, stream: int, segment: int) -> None:
        """Have one segment dropped, to be sent again."""
        raise NotImplementedError

    def submit_grant(self, grant: bytes) -> None:
        """Send a grant once. Record it before; it is not retried."""
        raise NotImplementedError

    def start_run(self) -> int:
        """Start a run once and return its number; not retried."""
        raise NotImplementedError

    def watch_run(self, run: int) -> Iterator[Progress]:
        """Progress until the run ends; a broken stream is taken up again.

        A refused run is a last item with its `refusal`, not an exception.
        """
        raise NotImplementedError

    def get_release(self, run: int, view: str) -> bytes:
        """The view sealed to this party."""
        raise NotImplementedError

    def get_receipt(self, run: int) -> bytes:
        raise NotImplementedError

    def renew_session(self) -> None:
        raise NotImplementedError

    def get_findings(self) -> RefusalDetail | None:
        """The latest refusal of this party on this plan with all its findings, if any."""
        raise NotImplementedError
