"""The upload journal: which segments are durable (docs/spec/wire.md, Journal).

A record is appended and synchronised after the data that it names.  Each
record's CRC covers the digest of the index and the record's position, so that a
torn, foreign or moved record ends the journal.  The journal is trusted up to its
first bad record and cut there; zeros behind the last record are space reserved
for the next ones, so that data that found room can be journaled on a full disk.
It guards against crashes, not against the host: AEAD decides when the artifact
is opened.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from enclave.wire.messages import SegmentRun
from enclave.workload.service.storage_errors import write_fully

_FIELDS = struct.Struct(">IIII")  # kind, stream, first, count
_CRC = struct.Struct(">I")
_SEQUENCE = struct.Struct(">Q")
RECORD_BYTES = _FIELDS.size + _CRC.size
RESERVED_RECORDS = 256
"""What `append` can take at once even on a full disk."""

_DURABLE, _FORGOTTEN = 1, 2
_MAX_JOURNAL_BYTES = 1 << 30
_BLOCK_BYTES = 4096


@dataclass(frozen=True)
class JournalEntry:
    """Segments that became durable, or that were forgotten again."""

    run: SegmentRun
    durable: bool


class SegmentJournal:
    """An open journal; made by `open_journal`. One writer."""

    def __init__(self, path: Path, index_sha256: bytes, descriptor: int, records: int) -> None:
        self._path = path
        self._seed = zlib.crc32(index_sha256)
        self._descriptor = descriptor
        self.records = records

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)

    def append(self, entries: Sequence[JournalEntry]) -> None:
        """Append and synchronise; after an OSError nothing of it is in the journal."""
        data = b"".join(
            _print_record(entry, self._seed, self.records + position)
            for position, entry in enumerate(entries)
        )
        end = self.records * RECORD_BYTES
        try:
            write_fully(self._descriptor, data, end)
            os.fdatasync(self._descriptor)
        except OSError:
            # If even this fails the torn record is cut at the next start.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, end)
                self.reserve()
            raise
        self.records += len(entries)
        with contextlib.suppress(OSError):
            self.reserve()

    def reserve(self) -> None:
        """Take disk space for the next records."""
        wanted = self.records * RECORD_BYTES + RESERVED_RECORDS * RECORD_BYTES
        blocks = -(-wanted // _BLOCK_BYTES)
        if os.fstat(self._descriptor).st_size < blocks * _BLOCK_BYTES:
            os.posix_fallocate(self._descriptor, 0, blocks * _BLOCK_BYTES)

    def rewrite(self, runs: Iterable[SegmentRun]) -> None:
        """Replace the journal by one that says the same in the fewest records."""
        fresh = self._path.with_suffix(".new")
        entries = [JournalEntry(run, durable=True) for run in runs]
        data = b"".join(
            _print_record(entry, self._seed, position) for position, entry in enumerate(entries)
        )
        descriptor = os.open(fresh, _FLAGS | os.O_TRUNC, 0o600)
        try:
            write_fully(descriptor, data, 0)
            os.fsync(descriptor)
            fresh.replace(self._path)
            sync_directory(self._path.parent)
        except OSError:
            os.close(descriptor)
            raise
        os.close(self._descriptor)
        self._descriptor, self.records = descriptor, len(entries)
        with contextlib.suppress(OSError):
            self.reserve()


_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def open_journal(
    path: Path, index_sha256: bytes
) -> tuple[SegmentJournal, tuple[JournalEntry, ...]]:
    """Open or create the journal for one index; returns it with its good entries.

    Whatever follows the last good record is cut off.
    """
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        size = min(os.fstat(descriptor).st_size, _MAX_JOURNAL_BYTES)
        entries = _parse_records(os.pread(descriptor, size, 0), zlib.crc32(index_sha256))
        os.ftruncate(descriptor, len(entries) * RECORD_BYTES)
        os.fsync(descriptor)
        sync_directory(path.parent)
    except OSError:
        os.close(descriptor)
        raise
    return SegmentJournal(path, index_sha256, descriptor, len(entries)), entries


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _print_record(entry: JournalEntry, seed: int, position: int) -> bytes:
    kind = _DURABLE if entry.durable else _FORGOTTEN
    fields = _FIELDS.pack(kind, entry.run.stream, entry.run.first, entry.run.count)
    return fields + _CRC.pack(zlib.crc32(_SEQUENCE.pack(position) + fields, seed))


def _parse_records(data: bytes, seed: int) -> tuple[JournalEntry, ...]:
    entries = []
    for offset in range(0, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
        fields = data[offset : offset + _FIELDS.size]
        (crc,) = _CRC.unpack_from(data, offset + _FIELDS.size)
        kind, stream, first, count = _FIELDS.unpack(fields)
        position = _SEQUENCE.pack(offset // RECORD_BYTES)
        if crc != zlib.crc32(position + fields, seed) or kind not in (_DURABLE, _FORGOTTEN):
            break
        entries.append(JournalEntry(SegmentRun(stream, first, count), durable=kind == _DURABLE))
    return tuple(entries)
