"""Sending a sealed artifact, resuming where the workload's store stands."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from enclave.clients.channel.client import EnclaveClient, back_off
from enclave.clients.channel.failures import PASSING_CODES
from enclave.core.errors import Refusal, UploadRefused
from enclave.core.plan import Plan
from enclave.core.sealed.index import (
    INDEX_NAME,
    MAX_INDEX_BYTES,
    SealedIndex,
    parse_index,
    stream_name,
)
from enclave.core.sealed.stream import SEGMENT_BYTES
from enclave.wire.allocator import keep_memory_flat
from enclave.wire.errors import ChannelRefused
from enclave.wire.messages import SegmentRun, UploadAcknowledged, UploadReport, UploadStatus
from enclave.wire.segment_frame import pack_segment

_ATTEMPTS = 6
"""Consecutive streams without one acknowledgement before the upload is given up."""

_BUSY_ATTEMPTS = 4
"""The stream of a client that died is still ending when its successor comes."""


def upload_artifact(
    client: EnclaveClient,
    plan: Plan,
    artifact: str,
    directory: Path,
    progress: Callable[[int, int], None] | None = None,
) -> UploadReport:
    """Upload the sealed directory of `artifact`; only missing segments are sent.

    `progress(durable_bytes, total_bytes)` is called as the workload acknowledges.
    A broken connection is taken up again with back-off, a bounded number of times
    without progress.  Raises UploadRefused (`upload_busy`, `upload_disk_full`,
    `upload_commitment_mismatch`, `upload_too_large`, `upload_source_changed`,
    `upload_source_missing`, ...) and ChannelRefused.
    """
    if client.plan != plan.digest:
        raise ValueError("the client speaks on another plan")
    keep_memory_flat()
    sender = _Sender(client, artifact, _Source(directory, plan.artifact(artifact).commitment))
    attempt = 0
    while True:
        before = sender.missing_segments
        try:
            sender.send_missing(progress)
            if sender.missing_segments == 0:
                return sender.report()
            refusal: Refusal | None = None
        except Refusal as error:
            refusal = error
        made_progress = before is None or (sender.missing_segments or 0) < before
        attempt = 0 if made_progress and refusal is None else attempt + 1
        if refusal is not None and not _may_pass(refusal, attempt):
            raise refusal
        if attempt >= _ATTEMPTS:
            raise refusal or UploadRefused("upload_stalled", expected="acknowledgements")
        time.sleep(back_off(attempt) if attempt else 0)


def _may_pass(refusal: Refusal, attempt: int) -> bool:
    if refusal.code == "upload_busy":
        return attempt < _BUSY_ATTEMPTS
    return refusal.code in PASSING_CODES and attempt < _ATTEMPTS


class _Source:
    """The sealed directory being sent."""

    def __init__(self, directory: Path, commitment: str) -> None:
        self._directory = directory
        self.index_bytes = _read_index(directory / INDEX_NAME)
        self.index: SealedIndex = parse_index(self.index_bytes)
        if self.index.commitment != commitment:
            raise UploadRefused(
                "upload_commitment_mismatch",
                expected=commitment,
                got=self.index.commitment,
                hint="this directory is not the artifact that the plan commits to",
            )

    def size_of(self, stream: int, segment: int) -> int:
        """Ciphertext bytes of one segment."""
        stream_bytes: int = self.index.streams[stream]
        return min(SEGMENT_BYTES, stream_bytes - segment * SEGMENT_BYTES)

    def refuse_foreign(self, runs: tuple[SegmentRun, ...]) -> None:
        """Refuse segments that the index does not have: the server is not yet trusted."""
        for run in runs:
            size = self.index.streams[run.stream] if run.stream < len(self.index.streams) else 0
            if run.count < 1 or (run.first + run.count - 1) * SEGMENT_BYTES >= size:
                raise ChannelRefused("message_malformed", expected="segments of the index")

    def read_runs(self, runs: tuple[SegmentRun, ...]) -> Iterator[tuple[int, int, bytes]]:
        """Stream, segment and ciphertext of every segment in the runs."""
        for run in runs:
            path = self._directory / stream_name(run.stream)
            with path.open("rb", buffering=0) as file:
                for segment in range(run.first, run.first + run.count):
                    size = self.size_of(run.stream, segment)
                    ciphertext = os.pread(file.fileno(), size, segment * SEGMENT_BYTES)
                    if len(ciphertext) != size:
                        raise UploadRefused(
                            "upload_source_changed",
                            expected=f"stream {run.stream}: {self.index.streams[run.stream]} bytes",
                            got="a shorter file",
                            hint="seal again, or restore the sealed directory",
                        )
                    yield run.stream, segment, ciphertext


def _read_index(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_INDEX_BYTES + 1)
    except OSError as error:
        raise _source_missing(error) from None


def _source_missing(error: OSError) -> UploadRefused:
    return UploadRefused(
        "upload_source_missing",
        expected="the directory that seal wrote",
        got=error.strerror or "",
        hint="give the sealed directory",
    )


class _Sender:
    """Streams of one upload, and what they counted."""

    def __init__(self, client: EnclaveClient, artifact: str, source: _Source) -> None:
        self._client = client
        self._artifact = artifact
        self._source = source
        self.missing_segments: int | None = None
        self._skipped_segments: int | None = None
        self._sent_segments = 0
        self._sent_bytes = 0
        self._failure: Refusal | None = None

    def report(self) -> UploadReport:
        """What was sent and what was not needed."""
        return UploadReport(self._sent_segments, self._skipped_segments or 0, self._sent_bytes)

    def send_missing(self, progress: Callable[[int, int], None] | None) -> None:
        """One stream: learn what is missing, send it, count what became durable."""
        wanted = _Wanted()
        replies = self._client.exchange_upload(
            self._artifact, self._source.index_bytes, self._messages(wanted)
        )
        durable = total = 0
        try:
            for reply in replies:
                if isinstance(reply, UploadStatus):
                    self._source.refuse_foreign(reply.missing)
                    durable, total = reply.total_bytes - reply.missing_bytes, reply.total_bytes
                    if self._skipped_segments is None:
                        self._skipped_segments = reply.total_segments - reply.missing_segments
                    wanted.set(reply.missing)
                else:
                    durable += self._bytes_of(reply)
                self.missing_segments = reply.missing_segments
                if progress is not None:
                    progress(durable, total)
        finally:
            wanted.set(())
        if self._failure is not None:
            raise self._failure

    def _bytes_of(self, reply: UploadAcknowledged) -> int:
        self._source.refuse_foreign(reply.durable)
        return sum(
            self._source.size_of(run.stream, segment)
            for run in reply.durable
            for segment in range(run.first, run.first + run.count)
        )

    def _messages(self, wanted: _Wanted) -> Iterator[bytes]:
        """Runs in gRPC's own thread: what fails here is kept for the caller."""
        try:
            for stream, segment, ciphertext in self._source.read_runs(wanted.get()):
                message = pack_segment(stream, segment, ciphertext)
                self._sent_segments += 1
                self._sent_bytes += len(ciphertext)
                yield message
        except OSError as error:
            self._failure = _source_missing(error)
        except Refusal as refusal:
            self._failure = refusal


class _Wanted:
    """The runs to send: set once by the receiving thread, awaited by the sending one."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._runs: tuple[SegmentRun, ...] = ()

    def set(self, runs: tuple[SegmentRun, ...]) -> None:
        if not self._ready.is_set():
            self._runs = runs
            self._ready.set()

    def get(self) -> tuple[SegmentRun, ...]:
        self._ready.wait()
        return self._runs
