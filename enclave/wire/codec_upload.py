"""Protobuf <-> domain: upload."""

from __future__ import annotations

from enclave.wire.generated.doubleblind.v1 import upload_pb2 as pb
from enclave.wire.messages import MAX_MISSING_RUNS, SegmentRun, UploadAcknowledged, UploadStatus
from enclave.wire.reading import malformed, read_artifact, read_digest, read_message, read_plan
from enclave.wire.requests import UploadOpen
from enclave.wire.segment_frame import split_segment


def print_open(request: UploadOpen) -> bytes:
    """The first `UploadRequest` of a stream."""
    return pb.UploadRequest(
        open=pb.UploadOpen(
            plan=bytes.fromhex(request.plan), artifact=request.artifact, index=request.index
        )
    ).SerializeToString()


def parse_open(data: bytes) -> UploadOpen:
    """The first `UploadRequest` of a stream."""
    message = read_message(pb.UploadRequest, data)
    if not message.HasField("open") or message.HasField("ciphertext"):
        raise malformed("UploadRequest.open first, alone")
    return UploadOpen(
        plan=read_plan(message.open.plan),
        artifact=read_artifact(message.open.artifact),
        index=message.open.index,
    )


def parse_segment(data: bytes) -> tuple[int, int, memoryview]:
    """A later `UploadRequest`: stream, segment, ciphertext."""
    parts = split_segment(data)
    if parts is not None:
        return parts
    message = read_message(pb.UploadRequest, data)
    present = all(message.HasField(name) for name in ("stream", "segment", "ciphertext"))
    if not present or message.HasField("open"):
        raise malformed("UploadRequest: stream, segment and ciphertext")
    return message.stream, message.segment, memoryview(message.ciphertext)


def _print_runs(runs: tuple[SegmentRun, ...]) -> list[pb.SegmentRun]:
    return [pb.SegmentRun(stream=run.stream, first=run.first, count=run.count) for run in runs]


def _status_message(status: UploadStatus) -> pb.UploadStatus:
    return pb.UploadStatus(
        artifact=status.artifact,
        index_sha256=bytes.fromhex(status.index_sha256),
        total_segments=status.total_segments,
        total_bytes=status.total_bytes,
        missing_segments=status.missing_segments,
        missing_bytes=status.missing_bytes,
        missing=_print_runs(status.missing),
    )


def _read_status(message: pb.UploadStatus) -> UploadStatus:
    if len(message.missing) > MAX_MISSING_RUNS:
        raise malformed(f"missing: at most {MAX_MISSING_RUNS} runs")
    return UploadStatus(
        artifact=read_artifact(message.artifact),
        index_sha256=read_digest(message.index_sha256, "index_sha256")
        if message.index_sha256
        else "",
        total_segments=message.total_segments,
        total_bytes=message.total_bytes,
        missing_segments=message.missing_segments,
        missing_bytes=message.missing_bytes,
        missing=tuple(SegmentRun(run.stream, run.first, run.count) for run in message.missing),
    )


def print_status(status: UploadStatus) -> bytes:
    """`UploadStatus`."""
    return _status_message(status).SerializeToString()


def parse_status(data: bytes) -> UploadStatus:
    """`UploadStatus`."""
    return _read_status(read_message(pb.UploadStatus, data))


def print_upload_reply(reply: UploadStatus | UploadAcknowledged) -> bytes:
    """`UploadReply`."""
    if isinstance(reply, UploadStatus):
        return pb.UploadReply(status=_status_message(reply)).SerializeToString()
    return pb.UploadReply(
        acknowledged=pb.UploadAcknowledged(
            durable=_print_runs(reply.durable), missing_segments=reply.missing_segments
        )
    ).SerializeToString()


def parse_upload_reply(data: bytes) -> UploadStatus | UploadAcknowledged:
    """`UploadReply`."""
    message = read_message(pb.UploadReply, data)
    if message.HasField("status"):
        return _read_status(message.status)
    if not message.HasField("acknowledged"):
        raise malformed("UploadReply: status or acknowledged")
    return UploadAcknowledged(
        durable=tuple(
            SegmentRun(run.stream, run.first, run.count) for run in message.acknowledged.durable
        ),
        missing_segments=message.acknowledged.missing_segments,
    )
