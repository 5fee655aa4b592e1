"""The service's methods: one row each, with both codecs.

Messages cross gRPC as bytes and are parsed outside of it, so that malformed ones
become typed refusals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from enclave.core.vocabulary import DIGEST_SIZE
from enclave.wire.codec_run import parse_progress, print_progress
from enclave.wire.codec_session import (
    parse_attest,
    parse_digest,
    parse_findings,
    parse_session,
    print_attest,
    print_digest,
    print_findings,
    print_session,
)
from enclave.wire.codec_upload import (
    parse_open,
    parse_status,
    parse_upload_reply,
    print_open,
    print_status,
    print_upload_reply,
)
from enclave.wire.generated.doubleblind.v1 import enclave_pb2, run_pb2, session_pb2, upload_pb2
from enclave.wire.messages import (
    AttestReply,
    Progress,
    RefusalDetail,
    SessionView,
    UploadAcknowledged,
    UploadStatus,
)
from enclave.wire.reading import (
    read_artifact,
    read_bytes,
    read_message,
    read_name,
    read_plan,
    read_run,
)
from enclave.wire.requests import (
    ArtifactRequest,
    PayloadRequest,
    PlanRequest,
    ReleaseRequest,
    RunRequest,
    SegmentRequest,
    UploadOpen,
)

SERVICE = enclave_pb2.DESCRIPTOR.services_by_name["Enclave"].full_name

Request = TypeVar("Request")
Reply = TypeVar("Reply")


@dataclass(frozen=True)
class Method(Generic[Request, Reply]):
    """One RPC. `is_idempotent`: asking again after a lost answer changes nothing."""

    name: str
    print_request: Callable[[Request], bytes]
    parse_request: Callable[[bytes], Request]
    print_reply: Callable[[Reply], bytes]
    parse_reply: Callable[[bytes], Reply]
    is_idempotent: bool

    @property
    def path(self) -> str:
        """The method's HTTP/2 path."""
        return f"/{SERVICE}/{self.name}"


def _plan_codec(
    kind: type[
        session_pb2.GetSessionRequest
        | session_pb2.GetPlanRequest
        | session_pb2.GetFindingsRequest
        | session_pb2.RenewSessionRequest
        | run_pb2.StartRunRequest
    ],
) -> tuple[Callable[[PlanRequest], bytes], Callable[[bytes], PlanRequest]]:
    def print_request(request: PlanRequest) -> bytes:
        return kind(plan=bytes.fromhex(request.plan)).SerializeToString()

    def parse_request(data: bytes) -> PlanRequest:
        return PlanRequest(read_plan(read_message(kind, data).plan))

    return print_request, parse_request


def _print_nonce(request: PayloadRequest) -> bytes:
    return session_pb2.AttestRequest(
        plan=bytes.fromhex(request.plan), nonce=request.payload
    ).SerializeToString()


def _parse_nonce(data: bytes) -> PayloadRequest:
    message = read_message(session_pb2.AttestRequest, data)
    return PayloadRequest(read_plan(message.plan), read_bytes(message.nonce, "nonce", DIGEST_SIZE))


def _print_approval(request: PayloadRequest) -> bytes:
    return session_pb2.SubmitApprovalRequest(
        plan=bytes.fromhex(request.plan), envelope=request.payload
    ).SerializeToString()


def _parse_approval(data: bytes) -> PayloadRequest:
    message = read_message(session_pb2.SubmitApprovalRequest, data)
    return PayloadRequest(read_plan(message.plan), message.envelope)


def _print_party_evidence(request: PayloadRequest) -> bytes:
    return session_pb2.SubmitPartyEvidenceRequest(
        plan=bytes.fromhex(request.plan), evidence=request.payload
    ).SerializeToString()


def _parse_party_evidence(data: bytes) -> PayloadRequest:
    message = read_message(session_pb2.SubmitPartyEvidenceRequest, data)
    return PayloadRequest(read_plan(message.plan), message.evidence)


def _print_grant(request: PayloadRequest) -> bytes:
    return session_pb2.SubmitGrantRequest(
        plan=bytes.fromhex(request.plan), grant=request.payload
    ).SerializeToString()


def _parse_grant(data: bytes) -> PayloadRequest:
    message = read_message(session_pb2.SubmitGrantRequest, data)
    return PayloadRequest(read_plan(message.plan), message.grant)


def _print_artifact(request: ArtifactRequest) -> bytes:
    return upload_pb2.GetUploadStatusRequest(
        plan=bytes.fromhex(request.plan), artifact=request.artifact
    ).SerializeToString()


def _parse_artifact(data: bytes) -> ArtifactRequest:
    message = read_message(upload_pb2.GetUploadStatusRequest, data)
    return ArtifactRequest(read_plan(message.plan), read_artifact(message.artifact))


def _print_segment(request: SegmentRequest) -> bytes:
    return upload_pb2.ForgetSegmentRequest(
        plan=bytes.fromhex(request.plan),
        artifact=request.artifact,
        stream=request.stream,
        segment=request.segment,
    ).SerializeToString()


def _parse_segment(data: bytes) -> SegmentRequest:
    message = read_message(upload_pb2.ForgetSegmentRequest, data)
    return SegmentRequest(
        read_plan(message.plan), read_artifact(message.artifact), message.stream, message.segment
    )


def _run_codec(
    kind: type[run_pb2.WatchRunRequest | run_pb2.GetReceiptRequest],
) -> tuple[Callable[[RunRequest], bytes], Callable[[bytes], RunRequest]]:
    def print_request(request: RunRequest) -> bytes:
        return kind(plan=bytes.fromhex(request.plan), run=request.run).SerializeToString()

    def parse_request(data: bytes) -> RunRequest:
        message = read_message(kind, data)
        return RunRequest(read_plan(message.plan), read_run(message.run))

    return print_request, parse_request


def _print_release(request: ReleaseRequest) -> bytes:
    return run_pb2.GetReleaseRequest(
        plan=bytes.fromhex(request.plan), run=request.run, view=request.view
    ).SerializeToString()


def _parse_release(data: bytes) -> ReleaseRequest:
    message = read_message(run_pb2.GetReleaseRequest, data)
    return ReleaseRequest(
        read_plan(message.plan), read_run(message.run), read_name(message.view, "view")
    )


def _nothing_codec(kind: type[Message]) -> tuple[Callable[[None], bytes], Callable[[bytes], None]]:
    def print_reply(_nothing: None) -> bytes:
        return b""

    def parse_reply(data: bytes) -> None:
        read_message(kind, data)

    return print_reply, parse_reply


def _print_plan_document(document: bytes) -> bytes:
    return session_pb2.GetPlanReply(document=document).SerializeToString()


def _parse_plan_document(data: bytes) -> bytes:
    return read_message(session_pb2.GetPlanReply, data).document


def _print_run_number(run: int) -> bytes:
    return run_pb2.StartRunReply(run=run).SerializeToString()


def _parse_run_number(data: bytes) -> int:
    return read_run(read_message(run_pb2.StartRunReply, data).run)


def _print_sealed(sealed: bytes) -> bytes:
    return run_pb2.GetReleaseReply(sealed=sealed).SerializeToString()


def _parse_sealed(data: bytes) -> bytes:
    return read_message(run_pb2.GetReleaseReply, data).sealed


def _print_receipt(receipt: bytes) -> bytes:
    return run_pb2.GetReceiptReply(receipt=receipt).SerializeToString()


def _parse_receipt(data: bytes) -> bytes:
    return read_message(run_pb2.GetReceiptReply, data).receipt


GET_SESSION: Method[PlanRequest, SessionView] = Method(
    "GetSession", *_plan_codec(session_pb2.GetSessionRequest), print_session, parse_session, True
)
GET_PLAN: Method[PlanRequest, bytes] = Method(
    "GetPlan",
    *_plan_codec(session_pb2.GetPlanRequest),
    _print_plan_document,
    _parse_plan_document,
    True,
)
ATTEST: Method[PayloadRequest, AttestReply] = Method(
    "Attest", _print_nonce, _parse_nonce, print_attest, parse_attest, True
)
GET_FINDINGS: Method[PlanRequest, RefusalDetail | None] = Method(
    "GetFindings",
    *_plan_codec(session_pb2.GetFindingsRequest),
    print_findings,
    parse_findings,
    True,
)
SUBMIT_APPROVAL: Method[PayloadRequest, None] = Method(
    "SubmitApproval",
    _print_approval,
    _parse_approval,
    *_nothing_codec(session_pb2.SubmitApprovalReply),
    False,
)
SUBMIT_PARTY_EVIDENCE: Method[PayloadRequest, str] = Method(
    "SubmitPartyEvidence",
    _print_party_evidence,
    _parse_party_evidence,
    print_digest,
    parse_digest,
    False,
)
RENEW_SESSION: Method[PlanRequest, None] = Method(
    "RenewSession",
    *_plan_codec(session_pb2.RenewSessionRequest),
    *_nothing_codec(session_pb2.RenewSessionReply),
    False,
)
START_RUN: Method[PlanRequest, int] = Method(
    "StartRun", *_plan_codec(run_pb2.StartRunRequest), _print_run_number, _parse_run_number, False
)
GET_UPLOAD_STATUS: Method[ArtifactRequest, UploadStatus] = Method(
    "GetUploadStatus", _print_artifact, _parse_artifact, print_status, parse_status, True
)
UPLOAD: Method[UploadOpen, UploadStatus | UploadAcknowledged] = Method(
    "Upload", print_open, parse_open, print_upload_reply, parse_upload_reply, True
)
FORGET_SEGMENT: Method[SegmentRequest, None] = Method(
    "ForgetSegment",
    _print_segment,
    _parse_segment,
    *_nothing_codec(upload_pb2.ForgetSegmentReply),
    True,
)
SUBMIT_GRANT: Method[PayloadRequest, None] = Method(
    "SubmitGrant",
    _print_grant,
    _parse_grant,
    *_nothing_codec(session_pb2.SubmitGrantReply),
    False,
)
WATCH_RUN: Method[RunRequest, Progress] = Method(
    "WatchRun", *_run_codec(run_pb2.WatchRunRequest), print_progress, parse_progress, True
)
GET_RELEASE: Method[ReleaseRequest, bytes] = Method(
    "GetRelease", _print_release, _parse_release, _print_sealed, _parse_sealed, True
)
GET_RECEIPT: Method[RunRequest, bytes] = Method(
    "GetReceipt", *_run_codec(run_pb2.GetReceiptRequest), _print_receipt, _parse_receipt, True
)
