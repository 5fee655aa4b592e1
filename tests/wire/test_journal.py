"""The journal is trusted to its first bad record, whatever a crash or the host left behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enclave.wire.messages import SegmentRun
from enclave.workload.service.journal import RECORD_BYTES, JournalEntry, open_journal

INDEX = b"i" * 32
runs = st.builds(
    SegmentRun, st.integers(0, 1000), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)
)
entries = st.lists(st.builds(JournalEntry, runs, st.booleans()), min_size=1, max_size=30)


def fill(path: Path, written: list[JournalEntry]) -> bytes:
    journal, _ = open_journal(path, INDEX)
    with journal:
        for entry in written:
            journal.append((entry,))
    return path.read_bytes()[: len(written) * RECORD_BYTES]


@given(entries)
@settings(max_examples=40, deadline=None)
def test_reads_back(written: list[JournalEntry]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        fill(path, written)
        journal, read = open_journal(path, INDEX)
        with journal:
            assert list(read) == written


@given(entries, st.data())
@settings(max_examples=150, deadline=None)
def test_random_corruption(written: list[JournalEntry], data: st.DataObject) -> None:
    """A flipped byte or a cut: exactly the records before it count, and appending goes on there."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        whole = fill(path, written)
        position = data.draw(st.integers(0, len(whole) - 1))
        if data.draw(st.booleans()):
            flipped = bytearray(whole)
            flipped[position] ^= data.draw(st.integers(1, 255))
            path.write_bytes(flipped)
        else:
            path.write_bytes(whole[:position])
        good = position // RECORD_BYTES
        journal, read = open_journal(path, INDEX)
        with journal:
            assert list(read) == written[:good]
            assert path.read_bytes()[good * RECORD_BYTES :].strip(b"\0") == b""
            added = JournalEntry(SegmentRun(7, 7, 7), durable=True)
            journal.append((added,))
        journal, read = open_journal(path, INDEX)
        journal.close()
        assert list(read) == [*written[:good], added]


@given(entries, st.binary(min_size=1, max_size=100))
@settings(max_examples=40, deadline=None)
def test_garbage_behind(written: list[JournalEntry], garbage: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        path.write_bytes(fill(path, written) + garbage)
        journal, read = open_journal(path, INDEX)
        journal.close()
        assert list(read) == written


def test_moved_or_foreign_records(tmp_path: Path) -> None:
    written = [JournalEntry(SegmentRun(0, n, 1), durable=True) for n in range(3)]
    path = tmp_path / "journal"
    whole = fill(path, written)
    records = [whole[n : n + RECORD_BYTES] for n in range(0, len(whole), RECORD_BYTES)]
    for order, good in (((1, 0, 2), 0), ((0, 2, 1), 1), ((0, 0, 1), 1)):
        path.write_bytes(b"".join(records[n] for n in order))
        journal, read = open_journal(path, INDEX)
        journal.close()
        assert list(read) == written[:good]
    path.write_bytes(whole)
    journal, read = open_journal(path, b"another index digest".ljust(32))
    journal.close()
    assert read == ()


def test_failed_append_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    whole = fill(path, [JournalEntry(SegmentRun(0, 0, 1), durable=True)])
    journal, _ = open_journal(path, INDEX)

    def fail(_descriptor: int) -> None:
        raise OSError(28, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail)
        with pytest.raises(OSError, match="no space"):
            journal.append((JournalEntry(SegmentRun(0, 1, 1), durable=True),))
    assert path.read_bytes().rstrip(b"\0") == whole.rstrip(b"\0")
    journal.append((JournalEntry(SegmentRun(0, 2, 1), durable=True),))
    journal.close()
    journal, read = open_journal(path, INDEX)
    journal.close()
    assert [entry.run.first for entry in read] == [0, 2]


def test_rewrite_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal, _ = open_journal(path, INDEX)
    for n in range(50):
        journal.append((JournalEntry(SegmentRun(0, n, 1), durable=True),))
    journal.rewrite((SegmentRun(0, 0, 50),))
    journal.append((JournalEntry(SegmentRun(0, 3, 1), durable=False),))
    journal.close()
    journal, read = open_journal(path, INDEX)
    journal.close()
    assert [(entry.run, entry.durable) for entry in read] == [
        (SegmentRun(0, 0, 50), True), (SegmentRun(0, 3, 1), False),
    ]  # fmt: skip
