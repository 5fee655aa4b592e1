"""Which segments an artifact's streams have, and which of them are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, islice

from enclave.core.errors import UploadRefused
from enclave.core.sealed.stream import SEGMENT_BYTES
from enclave.wire.messages import MAX_MISSING_RUNS, SegmentRun


class SegmentLayout:
    """Segments of streams with the given ciphertext sizes in bytes, and a presence map."""

    def __init__(self, streams: Sequence[int]) -> None:
        self._sizes = tuple(streams)
        self._counts = tuple(-(-size // SEGMENT_BYTES) for size in self._sizes)
        self._bases = (0, *accumulate(self._counts))
        self._present = bytearray(self._bases[-1])

    @property
    def streams(self) -> int:
        return len(self._sizes)

    @property
    def total_segments(self) -> int:
        return self._bases[-1]

    @property
    def total_bytes(self) -> int:
        return sum(self._sizes)

    @property
    def missing_segments(self) -> int:
        return self._present.count(0)

    def size_of(self, stream: int, segment: int) -> int:
        """Bytes of one segment; refusal `upload_segment_unknown` outside the index."""
        if not 0 <= stream < len(self._sizes) or not 0 <= segment < self._counts[stream]:
            raise UploadRefused(
                "upload_segment_unknown",
                expected="a segment of the index",
                got=f"stream {stream} segment {segment}",
            )
        return min(SEGMENT_BYTES, self._sizes[stream] - segment * SEGMENT_BYTES)

    def is_present(self, stream: int, segment: int) -> bool:
        """Whether a segment is there; refuses one outside the index."""
        self.size_of(stream, segment)
        return self._present[self._bases[stream] + segment] == 1

    def mark(self, run: SegmentRun, *, present: bool) -> None:
        """Set the presence of a run; refuses one outside the index."""
        if run.count < 1:
            raise UploadRefused("upload_segment_unknown", expected="at least one segment")
        self.size_of(run.stream, run.first)
        self.size_of(run.stream, run.first + run.count - 1)
        start = self._bases[run.stream] + run.first
        self._present[start : start + run.count] = bytes([present]) * run.count

    def missing_bytes(self) -> int:
        """Ciphertext bytes that are not there."""
        total = self.missing_segments * SEGMENT_BYTES
        for stream, count in enumerate(self._counts):
            if count and not self._present[self._bases[stream] + count - 1]:
                total -= SEGMENT_BYTES - self.size_of(stream, count - 1)
        return total

    def missing_runs(self, limit: int = MAX_MISSING_RUNS) -> tuple[SegmentRun, ...]:
        """The first `limit` runs of missing segments, in order."""
        return tuple(islice(self._runs(present=False), limit))

    def present_runs(self) -> tuple[SegmentRun, ...]:
        """Every run of segments that are there, in order."""
        return tuple(self._runs(present=True))

    def _runs(self, *, present: bool) -> Iterator[SegmentRun]:
        wanted, other = (b"\x01", b"\x00") if present else (b"\x00", b"\x01")
        for stream, count in enumerate(self._counts):
            base = self._bases[stream]
            end = base + count
            start = self._present.find(wanted, base, end)
            while start != -1:
                stop = self._present.find(other, start, end)
                stop = end if stop == -1 else stop
                yield SegmentRun(stream, start - base, stop - start)
                start = self._present.find(wanted, stop, end)


def join_segments(segments: Sequence[tuple[int, int]]) -> tuple[SegmentRun, ...]:
    """(stream, segment) pairs as the fewest runs, in order."""
    runs: list[SegmentRun] = []
    for stream, segment in sorted(segments):
        last = runs[-1] if runs else None
        if last is not None and (last.stream, last.first + last.count) == (stream, segment):
            runs[-1] = SegmentRun(stream, last.first, last.count + 1)
        else:
            runs.append(SegmentRun(stream, segment, 1))
    return tuple(runs)
