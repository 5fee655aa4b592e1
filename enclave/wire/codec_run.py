"""Protobuf <-> domain: the progress of a run."""

from __future__ import annotations

from enclave.wire.generated.doubleblind.v1 import run_pb2, session_pb2
from enclave.wire.messages import PROGRESS_STATES, Progress
from enclave.wire.reading import malformed, read_message, read_name, read_text

_MAX_TEXT = 1024


def print_progress(progress: Progress) -> bytes:
    """`RunProgress`."""
    message = run_pb2.RunProgress(
        stage=progress.stage, done=progress.done, total=progress.total, state=progress.state
    )
    if progress.refusal is not None:
        message.refusal.CopyFrom(
            session_pb2.Refusal(
                stage=progress.refusal.get("stage", ""),
                code=progress.refusal.get("code", ""),
                expected=read_text(progress.refusal.get("expected", ""), _MAX_TEXT),
                got=read_text(progress.refusal.get("got", ""), _MAX_TEXT),
                hint=read_text(progress.refusal.get("hint", ""), _MAX_TEXT),
            )
        )
    return message.SerializeToString()


def parse_progress(data: bytes) -> Progress:
    """`RunProgress`."""
    message = read_message(run_pb2.RunProgress, data)
    if message.state not in PROGRESS_STATES:
        raise malformed(f"state: {' or '.join(PROGRESS_STATES)}")
    refusal = None
    if message.HasField("refusal"):
        refusal = {
            "stage": read_name(message.refusal.stage, "stage"),
            "code": read_name(message.refusal.code, "code"),
            "expected": read_text(message.refusal.expected, _MAX_TEXT),
            "got": read_text(message.refusal.got, _MAX_TEXT),
            "hint": read_text(message.refusal.hint, _MAX_TEXT),
        }
    return Progress(
        stage=read_name(message.stage, "stage"),
        done=message.done,
        total=message.total,
        state=message.state,
        refusal=refusal,
    )
