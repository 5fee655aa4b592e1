"""The ciphertext of one artifact on disk, durable segment by segment.

    directory/index.json        the sealed artifact's index, as the owner sent it
    directory/journal           which segments are durable
    directory/data/NNNNNNNN.sealed

Nothing here is secret and nothing here is trusted: the host can alter all of it,
and AEAD under the granted key decides at opening.  A segment that does not open
is forgotten with `forget` and sent again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from enclave.core.errors import Refusal, UploadRefused
from enclave.core.plan import Plan
from enclave.core.plan_terms import ArtifactTerms
from enclave.core.sealed.index import (
    INDEX_NAME,
    MAX_INDEX_BYTES,
    SealedIndex,
    parse_index,
    stream_name,
)
from enclave.core.sealed.stream import SEGMENT_BYTES
from enclave.wire.messages import SegmentRun, UploadStatus
from enclave.workload.service.journal import (
    JournalEntry,
    SegmentJournal,
    open_journal,
    sync_directory,
)
from enclave.workload.service.segment_layout import SegmentLayout
from enclave.workload.service.storage_errors import disk_full, typed_storage_errors, write_fully
from enclave.workload.service.upload_intake import UploadIntake
from enclave.workload.service.upload_terms import refuse_other_index

_COMPACT_RECORDS = 4096
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def open_upload_store(root: Path, plan: Plan, artifact: str) -> UploadStore:
    """The store of an artifact of a plan under `root`, with what is durable from before."""
    return UploadStore(root / plan.digest / artifact, artifact, plan.artifact(artifact))


class UploadStore:
    """One artifact's ciphertext. Thread-safe; one upload at a time (`upload_busy`)."""

    def __init__(self, directory: Path, artifact: str, terms: ArtifactTerms) -> None:
        self.artifact = artifact
        self.directory = directory
        self._terms = terms
        self._guard = threading.RLock()
        self._data = directory / "data"
        self._index: SealedIndex | None = None
        self._index_sha256 = b""
        self._layout = SegmentLayout(())
        self._journal: SegmentJournal | None = None
        self._uploading = False
        with typed_storage_errors():
            self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
            # One process at a time; the kernel drops the lock when the process dies.
            self._lock_descriptor = os.open(directory / "lock", _WRITE, 0o600)
            self._load()

    def close(self) -> None:
        """Close every descriptor; what is durable stays."""
        with self._guard:
            if self._journal is not None:
                self._journal.close()
                self._journal = None
            os.close(self._lock_descriptor)

    def status(self) -> UploadStatus:
        """What is durable."""
        with self._guard:
            return UploadStatus(
                artifact=self.artifact,
                index_sha256=self._index_sha256.hex(),
                total_segments=self._layout.total_segments,
                total_bytes=self._layout.total_bytes,
                missing_segments=self._layout.missing_segments,
                missing_bytes=self._layout.missing_bytes(),
                missing=self._layout.missing_runs(),
            )

    @contextlib.contextmanager
    def receive(self, index: bytes) -> Iterator[UploadIntake]:
        """Take an upload under this index.json until the block ends.

        An index other than the stored one discards what was stored.  Raises
        UploadRefused (`upload_busy`, `upload_disk_full`, `upload_storage_failed`, those of
        `refuse_other_index`) and what `parse_index` raises.
        """
        parsed = parse_index(index)
        refuse_other_index(parsed, self.artifact, self._terms)
        with self._exclusive():
            with self._guard, typed_storage_errors():
                self._install(index, parsed)
                if self._journal is not None:
                    self._journal.reserve()
                self._refuse_small_disk()
            intake = UploadIntake(self._data, self._layout, self._record, self._guard)
            try:
                yield intake
            finally:
                intake.close()

    def forget(self, stream: int, segment: int) -> None:
        """Count one segment as missing; nothing if it is missing already."""
        with self._exclusive(), self._guard, typed_storage_errors():
            if not self._layout.is_present(stream, segment):
                return
            run = SegmentRun(stream, segment, 1)
            self._record((JournalEntry(run, durable=False),))

    def open_source(self) -> StoredCiphertext:
        """The complete ciphertext, to be opened; refusal `upload_incomplete`."""
        with self._guard:
            if self._index is None or self._layout.missing_segments:
                total = self._layout.total_segments
                raise UploadRefused(
                    "upload_incomplete",
                    expected=f"{total} segments of {self.artifact}" if total else self.artifact,
                    got=f"{total - self._layout.missing_segments} segments",
                    hint="upload again: only missing segments are sent",
                )
            return StoredCiphertext(self._index, self._data)

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        busy = UploadRefused("upload_busy", expected=f"one upload of {self.artifact} at a time")
        with self._guard:
            if self._uploading:
                raise busy
            try:
                fcntl.flock(self._lock_descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise busy from None
            self._uploading = True
        try:
            yield
        finally:
            with self._guard:
                self._uploading = False
                fcntl.flock(self._lock_descriptor, fcntl.LOCK_UN)

    def _load(self) -> None:
        try:
            index = _read_bounded(self.directory / INDEX_NAME)
            parsed = parse_index(index)
            refuse_other_index(parsed, self.artifact, self._terms)
        except (OSError, Refusal):
            return  # none yet, or the host altered it: the owner's next upload replaces it
        self._adopt(index, parsed)

    def _adopt(self, index: bytes, parsed: SealedIndex) -> None:
        digest = hashlib.sha256(index).digest()
        layout = SegmentLayout(parsed.streams)
        journal, entries = open_journal(self.directory / "journal", digest)
        try:
            for entry in entries:
                layout.mark(entry.run, present=entry.durable)
        except UploadRefused:  # CRCs are no signature: the host can write any record
            layout = SegmentLayout(parsed.streams)
            journal.rewrite(())
        if self._mark_short_files(layout):
            journal.rewrite(layout.present_runs())
        if self._journal is not None:
            self._journal.close()
        self._index, self._index_sha256 = parsed, digest
        self._layout, self._journal = layout, journal

    def _mark_short_files(self, layout: SegmentLayout) -> bool:
        """Count segments beyond the end of their file as missing: the host cut the file."""
        found = False
        for run in layout.present_runs():
            try:
                size = (self._data / stream_name(run.stream)).lstat().st_size
            except OSError:
                size = 0
            last = run.first + run.count - 1
            end = last * SEGMENT_BYTES + layout.size_of(run.stream, last)
            if size < end:
                whole = min(max(size // SEGMENT_BYTES - run.first, 0), run.count - 1)
                cut = SegmentRun(run.stream, run.first + whole, run.count - whole)
                layout.mark(cut, present=False)
                found = True
        return found

    def _install(self, index: bytes, parsed: SealedIndex) -> None:
        if self._index is not None and hashlib.sha256(index).digest() == self._index_sha256:
            return
        # The journal goes first: a journal must never outlive the data it speaks of.
        for stale in (self.directory / "journal", *self._data.iterdir()):
            stale.unlink(missing_ok=True)
        sync_directory(self._data)
        fresh = self.directory / "index.new"
        descriptor = os.open(fresh, _WRITE | os.O_TRUNC, 0o600)
        try:
            write_fully(descriptor, index, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        fresh.replace(self.directory / INDEX_NAME)
        sync_directory(self.directory)
        self._adopt(index, parsed)

    def _refuse_small_disk(self) -> None:
        """Tell at once what could only fail later; the truth is still what a write says."""
        space = os.statvfs(self.directory)
        free, missing = space.f_bavail * space.f_frsize, self._layout.missing_bytes()
        if space.f_blocks and free < missing:
            raise disk_full(f"{missing} bytes of disk", f"{free} bytes free")

    def _record(self, entries: tuple[JournalEntry, ...]) -> None:
        """Journal first, then believe."""
        with self._guard:
            journal = self._journal
            if journal is None:
                raise UploadRefused("upload_ended", expected="an open store")
            if journal.records + len(entries) > _COMPACT_RECORDS + 4 * self._layout.total_segments:
                journal.rewrite(self._layout.present_runs())
            journal.append(entries)
            for entry in entries:
                self._layout.mark(entry.run, present=entry.durable)


class StoredCiphertext:
    """The `SegmentSource` that the opener reads. Close it after opening."""

    def __init__(self, index: SealedIndex, data: Path) -> None:
        self.index = index
        self._data = data
        self._descriptors: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def descriptor(self, stream: int) -> int:
        """A read-only descriptor of one stream, owned by this object."""
        if stream not in self._descriptors:
            with typed_storage_errors():
                self._descriptors[stream] = os.open(self._data / stream_name(stream), _READ)
        return self._descriptors[stream]

    def close(self) -> None:
        """Close every descriptor given out."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])


def _read_bounded(path: Path) -> bytes:
    descriptor = os.open(path, _READ)
    try:
        return os.pread(descriptor, MAX_INDEX_BYTES + 1, 0)
    finally:
        os.close(descriptor)
