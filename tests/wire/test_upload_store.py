"""The ciphertext store: what it takes, what it refuses, what it believes after a restart."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enclave.core.canonical import print_canonical
from enclave.core.plan_terms import ArtifactTerms
from enclave.core.sealed.index import stream_name
from enclave.core.sealed.stream import SEGMENT_BYTES
from enclave.wire.messages import MAX_MISSING_RUNS, SegmentRun
from enclave.workload.service.segment_layout import SegmentLayout, join_segments
from enclave.workload.service.upload_intake import UploadIntake
from enclave.workload.service.upload_store import UploadStore
from tests.core.builders import expect_refusal
from tests.wire.enclaves import COMMITMENTS, write_sealed_directory

MIB = SEGMENT_BYTES
STREAMS = [200, 2 * MIB + 100, 60, MIB]
TERMS = ArtifactTerms(COMMITMENTS["model"], 8 * MIB, 5)


@dataclasses.dataclass
class Bench:
    """A sealed directory and a store for it."""

    source: Path
    index: bytes
    root: Path
    store: UploadStore

    def segment(self, stream: int, segment: int) -> memoryview:
        whole = (self.source / stream_name(stream)).read_bytes()
        return memoryview(whole)[segment * MIB : (segment + 1) * MIB]

    def put(self, intake: UploadIntake, *segments: tuple[int, int]) -> None:
        for stream, segment in segments:
            intake.write(stream, segment, self.segment(stream, segment))
        intake.make_durable(segments)

    def reopen(self) -> UploadStore:
        self.store.close()
        self.store = UploadStore(self.root, "model", TERMS)
        return self.store


ALL = [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (3, 0)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    index = write_sealed_directory(tmp_path / "sealed", "model", STREAMS)
    root = tmp_path / "store"
    return Bench(tmp_path / "sealed", index, root, UploadStore(root, "model", TERMS))


def test_whole_upload(bench: Bench) -> None:
    assert bench.store.status().total_segments == 0
    expect_refusal("upload_incomplete", bench.store.open_source)
    with bench.store.receive(bench.index) as intake:
        bench.put(intake, *ALL[:4])
        assert bench.store.status().missing == (SegmentRun(2, 0, 1), SegmentRun(3, 0, 1))
        assert bench.store.status().missing_bytes == 60 + MIB
        expect_refusal("upload_incomplete", bench.store.open_source)
        bench.put(intake, *ALL[4:])
    assert bench.store.status().is_complete
    for store in (bench.store, bench.reopen()):
        with store.open_source() as source:
            assert list(source.index.streams) == STREAMS
            for stream, size in enumerate(STREAMS):
                stored = os.pread(source.descriptor(stream), size + 1, 0)
                assert stored == (bench.source / stream_name(stream)).read_bytes()
                with pytest.raises(OSError, match="Bad file descriptor"):
                    os.write(source.descriptor(stream), b"x")


@pytest.mark.parametrize(
    ("stream", "segment", "size", "code"),
    [
        (1, 0, MIB - 1, "upload_segment_size"),
        (1, 2, 101, "upload_segment_size"),
        (1, 2, 0, "upload_segment_size"),
        (1, 3, 1, "upload_segment_unknown"),
        (4, 0, 1, "upload_segment_unknown"),
        (2**31, 2**31, 1, "upload_segment_unknown"),
        (0, 0, 200, "upload_segment_present"),
        (2, 0, 60, "upload_segment_present"),
    ],
)
def test_refused_segments(bench: Bench, stream: int, segment: int, size: int, code: str) -> None:
    with bench.store.receive(bench.index) as intake:
        bench.put(intake, (0, 0))
        intake.write(2, 0, bench.segment(2, 0))  # written, not durable yet
        expect_refusal(code, lambda: intake.write(stream, segment, memoryview(bytes(size))))
    assert (bench.root / "data" / stream_name(0)).read_bytes() == bytes(bench.segment(0, 0))


def index_of(**changes: object) -> bytes:
    return print_canonical(
        {
            "type": "https://w3id.org/double-blind/sealed-artifact/v1",
            "artifact": "model",
            "commitment": COMMITMENTS["model"],
            "streams": STREAMS,
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"commitment": "99" * 32}, "upload_commitment_mismatch"),
        ({"artifact": "suite"}, "upload_commitment_mismatch"),
        ({"streams": [200] * 7}, "upload_too_large"),
        ({"streams": [200, 8 * MIB + 40 + 9 * 16 + 1]}, "upload_too_large"),
        ({"streams": [2 * MIB, 60]}, "upload_too_large"),
    ],
)
def test_refused_indexes(bench: Bench, changes: dict[str, object], code: str) -> None:
    def receive() -> None:
        with bench.store.receive(index_of(**changes)):
            pytest.fail("taken")

    expect_refusal(code, receive)
    assert not (bench.root / "index.json").exists()


def test_largest_allowed_index(bench: Bench) -> None:
    exactly = index_of(streams=[200, 8 * MIB + 40 + 9 * 16])
    with bench.store.receive(exactly):
        assert bench.store.status().total_segments == 1 + 9


def test_one_upload_at_a_time(bench: Bench) -> None:
    def receive(store: UploadStore) -> None:
        with store.receive(bench.index):
            pytest.fail("taken")

    other_process = UploadStore(bench.root, "model", TERMS)
    with bench.store.receive(bench.index):
        expect_refusal("upload_busy", lambda: receive(bench.store))
        expect_refusal("upload_busy", lambda: receive(other_process))
        expect_refusal("upload_busy", lambda: bench.store.forget(0, 0))
    with other_process.receive(bench.index):
        pass


def test_nothing_after_the_end(bench: Bench) -> None:
    with bench.store.receive(bench.index) as intake:
        pass
    expect_refusal("upload_ended", lambda: intake.write(0, 0, bench.segment(0, 0)))


def test_forget_and_send_again(bench: Bench) -> None:
    with bench.store.receive(bench.index) as intake:
        bench.put(intake, *ALL)
    bench.store.forget(1, 1)
    bench.store.forget(1, 1)
    expect_refusal("upload_segment_unknown", lambda: bench.store.forget(1, 3))
    assert bench.reopen().status().missing == (SegmentRun(1, 1, 1),)
    with bench.store.receive(bench.index) as intake:
        bench.put(intake, (1, 1))
    assert bench.reopen().status().is_complete


def test_unjournaled_data_counts_as_missing(bench: Bench) -> None:
    with bench.store.receive(bench.index) as intake:
        bench.put(intake, (0, 0))
        intake.write(1, 0, bench.segment(1, 0))
    assert bench.reopen().status().missing_segments == 5


def test_another_index_starts_anew(bench: Bench) -> None:
    with bench.store.receive(bench.index) as intake:
        bench.put(intake, *ALL)
    with bench.store.receive(index_of(streams=[200, 60])):
        assert bench.store.status().missing_segments == 2
        assert list((bench.root / "data").iterdir()) == []


@pytest.mark.parametrize("damage", ["index", "journal", "short", "gone", "journal_lies"])
def test_host_damages_the_store(bench: Bench, damage: str) -> None:
    """Nothing is believed that is not there; the owner's next upload mends it."""
    with bench.store.receive(bench.index) as intake:
        bench.put(intake, *ALL)
    missing = {"index": 0, "journal": 6, "short": 2, "gone": 1, "journal_lies": 6}
    match damage:
        case "index":
            document = json.loads((bench.root / "index.json").read_bytes())
            document["streams"] = [1]
            (bench.root / "index.json").write_bytes(json.dumps(document).encode())
        case "journal":
            (bench.root / "journal").write_bytes(b"\x00" * 4096)
        case "short":
            os.truncate(bench.root / "data" / stream_name(1), MIB + 1)
        case "gone":
            (bench.root / "data" / stream_name(3)).unlink()
        case "journal_lies":
            from enclave.workload.service.journal import JournalEntry, open_journal

            journal, _ = open_journal(
                bench.root / "journal", bytes.fromhex(bench.store.status().index_sha256)
            )
            journal.append((JournalEntry(SegmentRun(1, 2, 2**31), durable=True),))
            journal.close()
    status = bench.reopen().status()
    assert status.missing_segments == missing[damage]
    expect_refusal("upload_incomplete", bench.store.open_source)
    with bench.store.receive(bench.index) as intake:
        for run in bench.store.status().missing:
            bench.put(intake, *((run.stream, run.first + n) for n in range(run.count)))
    assert bench.reopen().status().is_complete


def test_links_are_not_followed(bench: Bench, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (bench.root / "data" / stream_name(0)).symlink_to(victim)

    def put() -> None:
        with bench.store.receive(bench.index) as intake:
            (bench.root / "data" / stream_name(0)).symlink_to(victim)
            bench.put(intake, (0, 0))

    expect_refusal("upload_storage_failed", put)
    assert victim.read_bytes() == b"precious"


def test_journal_does_not_grow_for_ever(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enclave.workload.service.upload_store._COMPACT_RECORDS", 10)
    with bench.store.receive(bench.index) as intake:
        bench.put(intake, *ALL)
    for _ in range(60):
        bench.store.forget(0, 0)
        with bench.store.receive(bench.index) as intake:
            bench.put(intake, (0, 0))
    assert len((bench.root / "journal").read_bytes().rstrip(b"\0")) < 50 * 20
    assert bench.reopen().status().is_complete


@given(st.lists(st.integers(0, 5 * MIB), min_size=1, max_size=6), st.data())
def test_layout(streams: list[int], data: st.DataObject) -> None:
    layout = SegmentLayout(streams)
    everything = [
        (stream, segment)
        for stream, size in enumerate(streams)
        for segment in range(-(-size // MIB))
    ]
    assert layout.total_segments == len(everything)
    present = data.draw(st.sets(st.sampled_from(everything))) if everything else set()
    for run in join_segments(list(present)):
        layout.mark(run, present=True)
    missing = sorted(set(everything) - present)
    assert layout.missing_runs() == join_segments(missing)
    assert layout.present_runs() == join_segments(list(present))
    assert layout.missing_segments == len(missing)
    assert layout.missing_bytes() == sum(layout.size_of(*segment) for segment in missing)


def test_missing_runs_are_capped() -> None:
    layout = SegmentLayout([1] * (2 * MAX_MISSING_RUNS))
    assert len(layout.missing_runs()) == MAX_MISSING_RUNS
    assert layout.missing_segments == 2 * MAX_MISSING_RUNS
