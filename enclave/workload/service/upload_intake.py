"""One upload in progress: segments are written as they come and become durable in batches."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from enclave.core.errors import UploadRefused
from enclave.core.sealed.index import stream_name
from enclave.core.sealed.stream import SEGMENT_BYTES
from enclave.wire.messages import SegmentRun
from enclave.workload.service.journal import JournalEntry, sync_directory
from enclave.workload.service.segment_layout import SegmentLayout, join_segments
from enclave.workload.service.storage_errors import typed_storage_errors, write_fully

Segment = tuple[int, int]
"""Stream and segment number."""

_FLAGS = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
# Writeback starts after this many segments, so that fdatasync finds little left to do.
_WRITEBACK_SEGMENTS = 4


class UploadIntake:
    """Writes for one thread, `make_durable` for another.

    `record` journals entries and then marks them; `guard` protects the layout.
    """

    def __init__(
        self,
        data: Path,
        layout: SegmentLayout,
        record: Callable[[tuple[JournalEntry, ...]], None],
        guard: threading.RLock,
    ) -> None:
        self._data = data
        self._layout = layout
        self._record = record
        self._guard = guard
        self._writing = threading.Lock()
        self._closed = False
        self._in_flight: set[Segment] = set()
        self._stream = -1
        self._descriptor = -1
        self._new_names = False

    def write(self, stream: int, segment: int, ciphertext: memoryview) -> None:
        """Write one missing segment; it is not durable yet.

        Raises UploadRefused: `upload_segment_unknown`, `upload_segment_size`,
        `upload_segment_present`, `upload_disk_full`, `upload_storage_failed`, `upload_ended`.
        """
        with self._writing:
            if self._closed:
                raise UploadRefused("upload_ended", expected="an upload in progress")
            self._refuse_unwanted(stream, segment, len(ciphertext))
            offset = segment * SEGMENT_BYTES
            with typed_storage_errors():
                self._select(stream)
                write_fully(self._descriptor, ciphertext, offset)
                self._start_writeback(segment)
            self._in_flight.add((stream, segment))

    def make_durable(self, segments: Sequence[Segment]) -> tuple[SegmentRun, ...]:
        """Synchronise the data of written segments, then journal them.

        Raises UploadRefused (`upload_disk_full`, `upload_storage_failed`); the segments
        then count as missing.
        """
        runs = join_segments(segments)
        try:
            with typed_storage_errors():
                for stream in sorted({run.stream for run in runs}):
                    _sync_data(self._data / stream_name(stream))
                if self._new_names:
                    self._new_names = False
                    sync_directory(self._data)
                self._record(tuple(JournalEntry(run, durable=True) for run in runs))
        finally:
            with self._writing:
                self._in_flight.difference_update(segments)
        return runs

    def take_in_flight(self) -> tuple[Segment, ...]:
        """Segments that were written and are not durable."""
        with self._writing:
            return tuple(sorted(self._in_flight))

    def missing_segments(self) -> int:
        """How many segments are not durable."""
        with self._guard:
            return self._layout.missing_segments

    def close(self) -> None:
        """Take no more segments."""
        with self._writing:
            self._closed = True
            self._close_descriptor()

    def _refuse_unwanted(self, stream: int, segment: int, size: int) -> None:
        with self._guard:
            expected = self._layout.size_of(stream, segment)
            is_present = self._layout.is_present(stream, segment)
        where = f"stream {stream} segment {segment}"
        if size != expected:
            raise UploadRefused(
                "upload_segment_size",
                expected=f"{where}: {expected} bytes",
                got=f"{size} bytes",
            )
        if is_present or (stream, segment) in self._in_flight:
            raise UploadRefused("upload_segment_present", expected="missing segments", got=where)

    def _select(self, stream: int) -> None:
        if stream == self._stream:
            return
        self._close_descriptor()
        path = self._data / stream_name(stream)
        try:
            self._descriptor = os.open(path, _FLAGS)
        except FileNotFoundError:
            self._descriptor = os.open(path, _FLAGS | os.O_CREAT, 0o600)
            self._new_names = True
        self._stream = stream

    def _start_writeback(self, segment: int) -> None:
        if segment % _WRITEBACK_SEGMENTS == _WRITEBACK_SEGMENTS - 1:
            first = segment - _WRITEBACK_SEGMENTS + 1
            os.posix_fadvise(
                self._descriptor,
                first * SEGMENT_BYTES,
                _WRITEBACK_SEGMENTS * SEGMENT_BYTES,
                os.POSIX_FADV_DONTNEED,
            )

    def _close_descriptor(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = self._stream = -1


def _sync_data(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
