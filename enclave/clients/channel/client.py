"""One party's calls on an enclave, in domain types."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from attestation.errors import AttestationError
from enclave.clients.channel.bootstrap import split_endpoint
from enclave.clients.channel.failures import PASSING_CODES, describe_failure
from enclave.core.errors import PlanRefused, Refusal
from enclave.wire import methods
from enclave.wire.errors import ChannelRefused
from enclave.wire.messages import (
    AttestReply,
    Progress,
    RefusalDetail,
    SessionView,
    UploadAcknowledged,
    UploadStatus,
)
from enclave.wire.methods import Method
from enclave.wire.refusals import parse_status, rebuild_error
from enclave.wire.requests import (
    ArtifactRequest,
    PayloadRequest,
    PlanRequest,
    ReleaseRequest,
    RunRequest,
    SegmentRequest,
    UploadOpen,
)
from enclave.wire.transport import MAX_REQUEST_BYTES, client_options

_ATTEMPTS = 5
_FIRST_DELAY = 0.2
_LONGEST_DELAY = 3.0

Request = TypeVar("Request")
Reply = TypeVar("Reply")


@dataclass(frozen=True)
class Timeouts:
    """Deadlines in seconds: `call` for each unary call, `stream` for each stream."""

    call: float = 60.0
    stream: float = 6 * 3600.0


def back_off(attempt: int) -> float:
    """Seconds to wait after failed attempt 0, 1, 2, ..."""
    return float(min(_FIRST_DELAY * 2**attempt, _LONGEST_DELAY))


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
        split_endpoint(endpoint)
        self.plan = plan
        self.endpoint = endpoint
        self._server_certificate = server_certificate
        self._timeouts = timeouts
        root = x509.load_der_x509_certificate(server_certificate).public_bytes(Encoding.PEM)
        credentials = grpc.ssl_channel_credentials(root, client_key_pem, client_certificate_pem)
        self._channel = grpc.secure_channel(endpoint, credentials, options=client_options())

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
        self._channel.close()

    def get_session(self) -> SessionView:
        return self._call(methods.GET_SESSION, PlanRequest(self.plan))

    def get_plan(self) -> bytes:
        """The plan's bytes; their SHA-256 was compared with the digest asked for."""
        document = self._call(methods.GET_PLAN, PlanRequest(self.plan))
        digest = hashlib.sha256(document).hexdigest()
        if digest != self.plan:
            raise PlanRefused("plan_digest_mismatch", expected=self.plan, got=digest)
        return document

    def attest(self, nonce: bytes) -> AttestReply:
        """Evidence over a fresh 32-byte nonce. Appraise it before anything else."""
        return self._call(methods.ATTEST, PayloadRequest(self.plan, nonce))

    def submit_approval(self, envelope: bytes) -> None:
        self._call(methods.SUBMIT_APPROVAL, PayloadRequest(self.plan, envelope))

    def submit_party_evidence(self, evidence: bytes) -> str:
        """Answer the session's `party_challenge`; returns the evidence digest."""
        return self._call(methods.SUBMIT_PARTY_EVIDENCE, PayloadRequest(self.plan, evidence))

    def get_upload_status(self, artifact: str) -> UploadStatus:
        return self._call(methods.GET_UPLOAD_STATUS, ArtifactRequest(self.plan, artifact))

    def forget_segment(self, artifact: str, stream: int, segment: int) -> None:
        """Have one segment dropped, to be sent again."""
        request = SegmentRequest(self.plan, artifact, stream, segment)
        self._call(methods.FORGET_SEGMENT, request)

    def submit_grant(self, grant: bytes) -> None:
        """Send a grant once. Record it before; it is not retried."""
        self._call(methods.SUBMIT_GRANT, PayloadRequest(self.plan, grant))

    def start_run(self) -> int:
        """Start a run once and return its number; not retried."""
        return self._call(methods.START_RUN, PlanRequest(self.plan))

    def watch_run(self, run: int) -> Iterator[Progress]:
        """Progress until the run ends; a broken stream is taken up again.

        A refused run is a last item with its `refusal`, not an exception.
        """
        attempt = 0
        while True:
            try:
                for progress in self._stream(methods.WATCH_RUN, RunRequest(self.plan, run)):
                    attempt = 0
                    yield progress
                    if progress.state != "running":
                        return
            except ChannelRefused as refusal:
                if refusal.code not in PASSING_CODES or attempt + 1 >= _ATTEMPTS:
                    raise
            if attempt + 1 >= _ATTEMPTS:
                raise ChannelRefused("watch_ended", expected="progress until the run's end")
            time.sleep(back_off(attempt))
            attempt += 1

    def get_release(self, run: int, view: str) -> bytes:
        """The view sealed to this party."""
        return self._call(methods.GET_RELEASE, ReleaseRequest(self.plan, run, view))

    def get_receipt(self, run: int) -> bytes:
        return self._call(methods.GET_RECEIPT, RunRequest(self.plan, run))

    def renew_session(self) -> None:
        self._call(methods.RENEW_SESSION, PlanRequest(self.plan))

    def get_findings(self) -> RefusalDetail | None:
        """The latest refusal of this party on this plan with all its findings, if any."""
        return self._call(methods.GET_FINDINGS, PlanRequest(self.plan))

    def exchange_upload(
        self, artifact: str, index: bytes, segments: Iterator[bytes]
    ) -> Iterator[UploadStatus | UploadAcknowledged]:
        """One upload stream: `segments` are packed messages, sent after the first reply asks.

        `upload_artifact` is what to call; this is one attempt of it.
        """

        def messages() -> Iterator[bytes]:
            yield methods.UPLOAD.print_request(UploadOpen(self.plan, artifact, index))
            yield from segments

        call = self._channel.stream_stream(methods.UPLOAD.path, bytes, bytes)(
            messages(), timeout=self._timeouts.stream
        )
        return self._replies(methods.UPLOAD, call)

    def _call(self, method: Method[Request, Reply], request: Request) -> Reply:
        data = method.print_request(request)
        if len(data) > MAX_REQUEST_BYTES:
            raise ChannelRefused(
                "message_too_large",
                expected=f"at most {MAX_REQUEST_BYTES} bytes",
                got=f"{len(data)} bytes",
            )
        attempt = 0
        while True:
            try:
                ask = self._channel.unary_unary(method.path, bytes, bytes)
                reply = ask(data, timeout=self._timeouts.call)
            except grpc.RpcError as error:
                refusal = self._typed(error, method.name, self._timeouts.call)
            else:
                return method.parse_reply(reply)
            attempt += 1
            is_passing = refusal.code in PASSING_CODES and isinstance(refusal, ChannelRefused)
            if not (method.is_idempotent and is_passing) or attempt >= _ATTEMPTS:
                raise refusal
            time.sleep(back_off(attempt - 1))

    def _stream(self, method: Method[Request, Reply], request: Request) -> Iterator[Reply]:
        call = self._channel.unary_stream(method.path, bytes, bytes)(
            method.print_request(request), timeout=self._timeouts.stream
        )
        return self._replies(method, call)

    def _replies(self, method: Method[Any, Reply], call: Any) -> Iterator[Reply]:
        try:
            for reply in call:
                yield method.parse_reply(reply)
        except grpc.RpcError as error:
            raise self._typed(error, method.name, self._timeouts.stream) from None
        finally:
            call.cancel()

    def _typed(
        self, error: grpc.RpcError, method: str, timeout: float
    ) -> Refusal | AttestationError:
        typed = parse_status(error)
        if typed is None:
            return describe_failure(error, self.endpoint, self._server_certificate, timeout)
        detail, left_out = typed
        if left_out and method != methods.GET_FINDINGS.name:
            # The status is capped; the enclave keeps this caller's latest refusal in full.
            detail = self._full_detail(detail)
        return rebuild_error(detail)

    def _full_detail(self, detail: RefusalDetail) -> RefusalDetail:
        try:
            full = self.get_findings()
        except (Refusal, AttestationError):
            return detail
        return full if full is not None and full.code == detail.code else detail
