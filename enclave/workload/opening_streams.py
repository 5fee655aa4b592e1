"""Opening many streams at once: threads decrypt, write and digest, none waits for another.

A thread takes two segments that follow each other, reads and decrypts them into a locked
buffer and writes both to the destination: one write fills almost a whole huge page, so the
kernel zeroes little of it.  Then it digests what is next in its file, its own piece or
another's, unless a thread is at that already.  The write takes no page fault, and full
memory is an error, not a signal; measured, that is faster than decrypting into a mapping
of a fresh memfd and as fast on huge pages.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from blake3 import blake3

from enclave.core.errors import SealedRefused
from enclave.core.sealed.manifest import ManifestFile
from enclave.core.sealed.stream import (
    HEADER_BYTES,
    SEGMENT_BYTES,
    ByteBuffer,
    Segment,
    StreamCipher,
    StreamLayout,
)
from enclave.workload.memory.locking import LockedBuffer
from enclave.workload.memory.protected import ProtectedFile
from enclave.workload.segment_source import SegmentSource

_WATCH_SECONDS = 0.1
_BUFFERS_PER_THREAD = 2
_SEGMENTS_PER_PIECE = 2
_PIECE_BYTES = _SEGMENTS_PER_PIECE * SEGMENT_BYTES


@dataclass(frozen=True)
class _Opened:
    """The plaintext of a piece, written and not yet digested."""

    piece: _Piece
    buffer: LockedBuffer

    @property
    def plaintext(self) -> memoryview:
        return self.buffer.view[: self.piece.plaintext_size]


@dataclass
class StreamTask:
    """One file to open: its stream number, manifest entry and destination."""

    stream: int
    file: ManifestFile
    destination: ProtectedFile
    digest: blake3 = field(default_factory=blake3)
    digested: int = 0
    digesting: bool = False
    complete: bool = False
    waiting: dict[int, _Opened] = field(default_factory=dict)


@dataclass(frozen=True)
class _Piece:
    """Adjacent segments that one thread has taken, with what it needs to open them."""

    task: StreamTask
    number: int
    segments: tuple[Segment, ...]
    cipher: StreamCipher
    descriptor: int

    @property
    def plaintext_size(self) -> int:
        return sum(segment.plaintext_size for segment in self.segments)


class _Stopped(Exception):
    """Another thread failed."""


class StreamOpener:
    """Opens all tasks or raises the first failure; destinations are the caller's to wipe."""

    def __init__(
        self,
        ciphertexts: SegmentSource,
        key: ByteBuffer,
        tasks: list[StreamTask],
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._ciphertexts = ciphertexts
        self._key = key
        self._tasks = tasks
        self._progress = progress
        self._total = sum(task.file.size for task in tasks)
        self._done = 0
        self._pieces = self._iterate_pieces()
        self._claiming = threading.Lock()
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        self._running = 0
        self._free: list[LockedBuffer] = []

    def open_all(self, threads: int) -> None:
        """Decrypt, write and digest everything on `threads` threads."""
        workers = [
            threading.Thread(target=self._work, name=f"open-{number}", daemon=True)
            for number in range(threads)
        ]
        self._running = threads
        buffers = [LockedBuffer(_PIECE_BYTES) for _ in range(_BUFFERS_PER_THREAD * threads)]
        self._free = list(buffers)
        try:
            for worker in workers:
                worker.start()
            self._watch()
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            for worker in workers:
                if worker.ident is not None:
                    worker.join()
            for buffer in buffers:
                buffer.wipe()
        if self._failure is not None:
            raise self._failure
        for task in self._tasks:
            if not task.complete:
                raise _digest_mismatch(task, "an unfinished digest")

    def _watch(self) -> None:
        """Report progress until the threads have ended; they are not held up by it."""
        reported = -1
        while True:
            ended = self._ended.wait(_WATCH_SECONDS)
            done = self._done
            if done != reported and self._progress is not None and self._failure is None:
                self._progress(done, self._total)
            reported = done
            if ended:
                return

    def _work(self) -> None:
        ciphertext = memoryview(bytearray(SEGMENT_BYTES))
        try:
            # First the buffer, then the piece: who holds a piece never waits for a buffer.
            while (piece := self._claim(buffer := self._take_buffer())) is not None:
                opened = _Opened(piece, buffer)
                _open_piece(piece, ciphertext, buffer.view)
                piece.task.destination.write(opened.plaintext, piece.segments[0].plaintext_offset)
                self._digest(piece.task, opened)
        except _Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by the calling thread
            self._fail(error)
        finally:
            with self._changed:
                self._running -= 1
                if not self._running:
                    self._ended.set()

    def _take_buffer(self) -> LockedBuffer:
        with self._changed:
            self._changed.wait_for(lambda: self._free or self._failure is not None)
            if self._failure is not None:
                raise _Stopped
            return self._free.pop()

    def _claim(self, buffer: LockedBuffer) -> _Piece | None:
        with self._claiming:
            piece = next(self._pieces, None)
        if piece is None:
            self._give_back(buffer)
        return piece

    def _give_back(self, buffer: LockedBuffer, done: int = 0) -> None:
        with self._changed:
            self._done += done
            self._free.append(buffer)
            self._changed.notify()

    def _iterate_pieces(self) -> Iterator[_Piece]:
        """Every piece in order, so that the next to digest is always at work or done."""
        for task in self._tasks:
            layout = StreamLayout(task.file.size)
            descriptor = self._ciphertexts.descriptor(task.stream)
            refuse_size(descriptor, layout, task.stream)
            header = bytearray(HEADER_BYTES)
            read_exactly(descriptor, memoryview(header), 0, task.stream)
            cipher = StreamCipher(self._key, bytes(header), task.stream)
            for number, first in enumerate(range(0, layout.segments, _SEGMENTS_PER_PIECE)):
                end = min(first + _SEGMENTS_PER_PIECE, layout.segments)
                segments = tuple(layout.segment(segment) for segment in range(first, end))
                yield _Piece(task, number, segments, cipher, descriptor)

    def _digest(self, task: StreamTask, opened: _Opened) -> None:
        """Digest all that is next in the file, or leave it to the thread that is at it."""
        with self._changed:
            task.waiting[opened.piece.number] = opened
            if task.digesting:
                return
            task.digesting = True
        while (following := self._take_next(task)) is not None:
            task.digest.update(following.plaintext)
            if following.piece.segments[-1].last:
                if task.digest.hexdigest() != task.file.blake3:
                    raise _digest_mismatch(task, "other content")
                task.complete = True
            task.digested += 1
            self._give_back(following.buffer, following.piece.plaintext_size)

    def _take_next(self, task: StreamTask) -> _Opened | None:
        with self._changed:
            following = task.waiting.pop(task.digested, None)
            task.digesting = following is not None
            return following

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._failure is None:
                self._failure = error
            self._changed.notify_all()


def _open_piece(piece: _Piece, ciphertext: memoryview, plaintext: memoryview) -> None:
    """Decrypt a piece to the start of `plaintext`; `ciphertext` is room for one segment."""
    filled = 0
    for segment in piece.segments:
        sealed = ciphertext[: segment.ciphertext_size]
        read_exactly(piece.descriptor, sealed, segment.ciphertext_offset, piece.task.stream)
        opened = plaintext[filled : filled + segment.plaintext_size]
        piece.cipher.open_into(segment, sealed, opened)
        filled += segment.plaintext_size


def _digest_mismatch(task: StreamTask, got: str) -> SealedRefused:
    return SealedRefused(
        "file_digest_mismatch",
        expected=f"file {task.stream} as the manifest digests it",
        got=got,
    )


def refuse_size(descriptor: int, layout: StreamLayout, stream: int) -> None:
    """Refuse a ciphertext file of another size: `stream_truncated`, `stream_trailing`."""
    size = os.fstat(descriptor).st_size
    if size == layout.ciphertext_size:
        return
    raise SealedRefused(
        "stream_truncated" if size < layout.ciphertext_size else "stream_trailing",
        expected=f"stream {stream}: {layout.ciphertext_size} bytes",
        got=f"{size} bytes",
        hint="upload the artifact again",
    )


def read_exactly(descriptor: int, buffer: memoryview, offset: int, stream: int) -> None:
    """Fill `buffer` from `offset`; refusals `stream_truncated`, `stream_unreadable`."""
    while buffer:
        try:
            count = os.preadv(descriptor, [buffer], offset)
        except OSError:
            raise SealedRefused("stream_unreadable", expected=f"stream {stream}") from None
        if count == 0:
            raise SealedRefused(
                "stream_truncated", expected=f"stream {stream} as the index says", got="less"
            )
        buffer = buffer[count:]
        offset += count
