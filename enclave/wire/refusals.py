"""Refusals across the channel: google.rpc.Status with one ErrorInfo.

gRPC loses a status whose details pass 16 KiB, so they are capped well below and
the rest is fetched with GetFindings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from attestation import errors as attestation_errors
from attestation.errors import AttestationError, Finding
from enclave.core.errors import Refusal, rebuild_refusal
from enclave.wire.errors import ChannelRefused
from enclave.wire.messages import RefusalDetail
from enclave.wire.reading import read_text

DOMAIN = "double-blind-enclave"
MAX_STATUS_BYTES = 6 * 1024
_MAX_TEXT_BYTES = 768
_MAX_FINDING_TEXT = 160
_FINDING_FIELDS = ("check", "field", "expected", "got", "code")

_ATTESTATION = "attestation"
_ATTESTATION_CLASSES: Mapping[str, type[AttestationError]] = {
    kind.stage: kind
    for kind in (
        attestation_errors.MalformedEvidence,
        attestation_errors.SignatureInvalid,
        attestation_errors.EndorsementUnavailable,
        attestation_errors.PolicyRefused,
        attestation_errors.CollectError,
        attestation_errors.MalformedPolicy,
    )
}

_STATUS_CODES: Mapping[str, grpc.StatusCode] = {
    "peer_unknown": grpc.StatusCode.UNAUTHENTICATED,
    "role_forbidden": grpc.StatusCode.PERMISSION_DENIED,
    "message_malformed": grpc.StatusCode.INVALID_ARGUMENT,
    "deadline_missing": grpc.StatusCode.INVALID_ARGUMENT,
    "deadline_too_long": grpc.StatusCode.INVALID_ARGUMENT,
    "caller_busy": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "upload_busy": grpc.StatusCode.ABORTED,
    "upload_disk_full": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "internal": grpc.StatusCode.INTERNAL,
}


def describe_refusal(error: Refusal | AttestationError) -> RefusalDetail:
    """The refusal with everything that may cross the channel."""
    if isinstance(error, AttestationError):
        return RefusalDetail(
            stage=_ATTESTATION,
            code=error.code,
            attestation_stage=error.stage,
            findings=error.findings,
            checks=error.checks,
        )
    return RefusalDetail(error.stage, error.code, error.expected, error.got, error.hint)


def rebuild_error(detail: RefusalDetail) -> Refusal | AttestationError:
    """The refusal as the exception that it was on the other side."""
    if detail.stage == _ATTESTATION:
        kind = _ATTESTATION_CLASSES.get(detail.attestation_stage, AttestationError)
        return kind(detail.code, detail.findings, detail.checks)
    texts = {"expected": detail.expected, "got": detail.got, "hint": detail.hint}
    try:
        if detail.stage == ChannelRefused.stage:
            return ChannelRefused(detail.code, **texts)
        return rebuild_refusal(detail.stage, detail.code, **texts)
    except ValueError:  # the other side is not what it should be
        return ChannelRefused("refusal_malformed", expected="a refusal code")


def print_status(detail: RefusalDetail) -> tuple[grpc.StatusCode, status_pb2.Status]:
    """The status of a refused call, at most `MAX_STATUS_BYTES` long."""
    metadata = {
        "stage": detail.stage,
        "expected": _cut(detail.expected),
        "got": _cut(detail.got),
        "hint": _cut(detail.hint),
    }
    if detail.stage == _ATTESTATION:
        metadata["attestation_stage"] = detail.attestation_stage
        metadata["findings_total"] = str(len(detail.findings))
    code = _STATUS_CODES.get(detail.code, grpc.StatusCode.FAILED_PRECONDITION)
    status = _pack(code, detail.code, metadata)
    summary: list[dict[str, str]] = []
    for finding in detail.findings:
        summary.append(
            {name: getattr(finding, name)[:_MAX_FINDING_TEXT] for name in _FINDING_FIELDS}
        )
        longer = _pack(code, detail.code, {**metadata, "findings": json.dumps(summary)})
        if longer.ByteSize() > MAX_STATUS_BYTES:
            break
        status = longer
    return code, status


def _pack(code: grpc.StatusCode, reason: str, metadata: Mapping[str, str]) -> status_pb2.Status:
    packed = any_pb2.Any()
    packed.Pack(error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata))
    number: int = code.value[0]
    return status_pb2.Status(code=number, message=reason, details=[packed])


def _cut(text: str) -> str:
    if len(text.encode()) <= _MAX_TEXT_BYTES:
        return text
    return text.encode()[: _MAX_TEXT_BYTES - 3].decode(errors="ignore") + "…"


def parse_status(call: Any) -> tuple[RefusalDetail, int] | None:
    """The typed refusal in a failed call and how many findings were left out; None without one."""
    try:
        status = rpc_status.from_call(call)
    except (ValueError, DecodeError):
        return None
    info = error_details_pb2.ErrorInfo()
    for packed in () if status is None else status.details:
        if packed.Is(info.DESCRIPTOR) and packed.Unpack(info) and info.domain == DOMAIN:
            findings = _parse_findings(info.metadata.get("findings", "[]"))
            detail = RefusalDetail(
                stage=read_text(info.metadata.get("stage", ""), 64),
                code=info.reason,
                expected=read_text(info.metadata.get("expected", ""), _MAX_TEXT_BYTES),
                got=read_text(info.metadata.get("got", ""), _MAX_TEXT_BYTES),
                hint=read_text(info.metadata.get("hint", ""), _MAX_TEXT_BYTES),
                attestation_stage=read_text(info.metadata.get("attestation_stage", ""), 64),
                findings=findings,
            )
            total = info.metadata.get("findings_total", "0")
            left_out = int(total) - len(findings) if total.isdecimal() and len(total) < 7 else 0
            return detail, max(left_out, 0)
    return None


def _parse_findings(text: str) -> tuple[Finding, ...]:
    try:
        entries = json.loads(text)
        return tuple(
            Finding(**{name: read_text(str(entry[name]), 200) for name in _FINDING_FIELDS})
            for entry in entries
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()
