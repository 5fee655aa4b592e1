"""The service's methods, each a few words with the facade."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from enclave.wire import methods
from enclave.wire.messages import (
    AttestReply,
    Progress,
    RefusalDetail,
    SessionView,
    UploadAcknowledged,
    UploadStatus,
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
from enclave.workload.service.calls import CallBorder
from enclave.workload.service.facade import EnclaveFacade
from enclave.workload.service.peers import Caller
from enclave.workload.service.upload_stream import receive_upload


class EnclaveServicer:
    """Answers calls that the border let in."""

    def __init__(self, facade: EnclaveFacade, border: CallBorder) -> None:
        self._facade = facade
        self._border = border

    def handlers(self) -> dict[str, Any]:
        """Handlers for gRPC by method name."""
        border = self._border
        return {
            methods.GET_SESSION.name: border.unary(methods.GET_SESSION, self._get_session),
            methods.GET_PLAN.name: border.unary(methods.GET_PLAN, self._get_plan),
            methods.ATTEST.name: border.unary(methods.ATTEST, self._attest),
            methods.GET_FINDINGS.name: border.unary(methods.GET_FINDINGS, self._get_findings),
            methods.SUBMIT_APPROVAL.name: border.unary(
                methods.SUBMIT_APPROVAL, self._submit_approval
            ),
            methods.SUBMIT_PARTY_EVIDENCE.name: border.unary(
                methods.SUBMIT_PARTY_EVIDENCE, self._submit_party_evidence
            ),
            methods.RENEW_SESSION.name: border.unary(methods.RENEW_SESSION, self._renew_session),
            methods.START_RUN.name: border.unary(methods.START_RUN, self._start_run),
            methods.GET_UPLOAD_STATUS.name: border.unary(
                methods.GET_UPLOAD_STATUS, self._get_upload_status
            ),
            methods.UPLOAD.name: border.bidirectional(methods.UPLOAD, self._upload),
            methods.FORGET_SEGMENT.name: border.unary(methods.FORGET_SEGMENT, self._forget_segment),
            methods.SUBMIT_GRANT.name: border.unary(methods.SUBMIT_GRANT, self._submit_grant),
            methods.WATCH_RUN.name: border.server_stream(methods.WATCH_RUN, self._watch_run),
            methods.GET_RELEASE.name: border.unary(methods.GET_RELEASE, self._get_release),
            methods.GET_RECEIPT.name: border.unary(methods.GET_RECEIPT, self._get_receipt),
        }

    def _get_session(self, caller: Caller, _: PlanRequest) -> SessionView:
        return self._facade.view_session(caller.plan)

    def _get_plan(self, caller: Caller, _: PlanRequest) -> bytes:
        return self._facade.plans()[caller.plan].to_bytes()

    def _attest(self, caller: Caller, request: PayloadRequest) -> AttestReply:
        return self._facade.attest(caller.plan, caller.role, request.payload)

    def _get_findings(self, caller: Caller, _: PlanRequest) -> RefusalDetail | None:
        return self._border.latest_refusal(caller)

    def _submit_approval(self, caller: Caller, request: PayloadRequest) -> None:
        self._facade.submit_approval(caller.plan, caller.role, request.payload)

    def _submit_party_evidence(self, caller: Caller, request: PayloadRequest) -> str:
        return self._facade.submit_party_evidence(caller.plan, caller.role, request.payload)

    def _renew_session(self, caller: Caller, _: PlanRequest) -> None:
        self._facade.renew_session(caller.plan, caller.role)

    def _start_run(self, caller: Caller, _: PlanRequest) -> int:
        return self._facade.start_run(caller.plan, caller.role)

    def _get_upload_status(self, caller: Caller, request: ArtifactRequest) -> UploadStatus:
        return self._facade.upload_store(caller.plan, request.artifact).status()

    def _upload(
        self, caller: Caller, request: UploadOpen, messages: Iterator[bytes]
    ) -> Iterator[UploadStatus | UploadAcknowledged]:
        store = self._facade.upload_store(caller.plan, request.artifact)
        yield from receive_upload(store, request.index, messages)
        if store.status().is_complete:
            self._facade.artifact_uploaded(caller.plan, request.artifact)

    def _forget_segment(self, caller: Caller, request: SegmentRequest) -> None:
        store = self._facade.upload_store(caller.plan, request.artifact)
        store.forget(request.stream, request.segment)

    def _submit_grant(self, caller: Caller, request: PayloadRequest) -> None:
        self._facade.submit_grant(caller.plan, caller.role, request.payload)

    def _watch_run(self, caller: Caller, request: RunRequest) -> Iterator[Progress]:
        return self._facade.watch_run(caller.plan, request.run)

    def _get_release(self, caller: Caller, request: ReleaseRequest) -> bytes:
        return self._facade.release(caller.plan, caller.role, request.run, request.view)

    def _get_receipt(self, caller: Caller, request: RunRequest) -> bytes:
        return self._facade.receipt(caller.plan, request.run)
