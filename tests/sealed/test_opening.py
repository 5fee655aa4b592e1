"""Opening: round trips, each attack with its code, and nothing left after a failure."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save

from enclave.core.canonical import print_canonical
from enclave.core.errors import Refusal, SealedRefused
from enclave.core.sealed import ArtifactLimits
from enclave.core.vocabulary import MANIFEST_TYPE
from enclave.workload.memory.memfd import MemfdMemory
from enclave.workload.memory.protected import WipeReport
from enclave.workload.memory.tmpfs import TmpfsMemory
from tests.sealed.artifacts import (
    FIRST,
    NEXT,
    Sealed,
    craft,
    manifest_entry,
    read_opened,
    rewrite_index,
    seal_stream,
    seal_tree,
)
from tests.sealed.conftest import MountTmpfs

MIB = 1024 * 1024
FILES = {
    "a.bin": os.urandom(FIRST + 2 * NEXT + 100),
    "b.bin": os.urandom(FIRST + 2 * NEXT + 100),
    "c.txt": b"short",
    "d.txt": b"",
}


def refused(action: Callable[[], object]) -> Refusal:
    with pytest.raises(Refusal) as caught:
        action()
    return caught.value


SIZES = st.sampled_from([0, 1, 1000, FIRST - 1, FIRST, FIRST + 1, FIRST + NEXT, FIRST + NEXT + 1])


@given(sizes=st.lists(SIZES, min_size=1, max_size=5), threads=st.integers(1, 4))
@settings(max_examples=15, deadline=None)
def test_round_trip(sizes: list[int], threads: int) -> None:
    files = {f"{number}/file": os.urandom(size) for number, size in enumerate(sizes)}
    memory = MemfdMemory()
    with TemporaryDirectory() as place:
        opened = seal_tree(Path(place), files).open(memory, threads=threads)
    assert read_opened(opened) == files
    assert memory.wipe() == WipeReport(len(sizes), sum(sizes))


@pytest.mark.root
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_round_trip_on_huge_pages(tmp_path: Path, mount_tmpfs: MountTmpfs, threads: int) -> None:
    folder = mount_tmpfs()
    memory = TmpfsMemory(folder)
    assert read_opened(seal_tree(tmp_path, FILES).open(memory, threads=threads)) == FILES
    assert len(list(folder.iterdir())) == len(FILES)
    memory.wipe()
    assert list(folder.iterdir()) == []


def test_safetensors_reads_the_descriptor(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    tensors = {"w": np.arange(700_000, dtype=np.float32).reshape(700, 1000)}
    sealed = seal_tree(tmp_path, {"model.safetensors": save(tensors)}, "model")
    memory = MemfdMemory()
    opened = sealed.open(memory)
    with safe_open(f"/proc/self/fd/{opened.files[0].fd}", framework="np") as file:
        assert (file.get_tensor("w") == tensors["w"]).all()
    memory.wipe()


def test_three_artifacts_share_a_memory(tmp_path: Path) -> None:
    memory = MemfdMemory()
    opened = [
        seal_tree(tmp_path / artifact, {"x.json": artifact.encode()}, artifact).open(memory)
        for artifact in ("model", "suite", "bundle")
    ]
    assert [read_opened(one)["x.json"] for one in opened] == [b"model", b"suite", b"bundle"]
    assert memory.wipe() == WipeReport(3, len("modelsuitebundle"))


def test_the_same_artifact_twice(tmp_path: Path) -> None:
    sealed, memory = seal_tree(tmp_path, FILES), MemfdMemory()
    first = sealed.open(memory)
    assert refused(lambda: sealed.open(memory)).code == "memory_name_taken"
    assert read_opened(first) == FILES, "the failed one wipes its own files only"
    memory.wipe()


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    from enclave.workload.opening import open_artifact
    from enclave.workload.segment_source import SealedDirectory

    sealed, seen = seal_tree(tmp_path, FILES), []
    with SealedDirectory(sealed.directory) as source:
        open_artifact(
            source,
            sealed.key,
            sealed.salt,
            sealed.commitment,
            MemfdMemory(),
            ArtifactLimits(),
            2,
            progress=lambda done, total: seen.append((done, total)),
        )
    total = sum(map(len, FILES.values()))
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)


# Attacks by the host, who holds no key.  Stream 1 is a.bin (4 segments), 2 b.bin, 3 c.txt.


def edit(stream: int, change: Callable[[bytearray], None]) -> Callable[[Sealed], None]:
    def attack(sealed: Sealed) -> None:
        data = bytearray(sealed.stream(stream).read_bytes())
        change(data)
        sealed.stream(stream).write_bytes(data)

    return attack


def flip(stream: int, offset: int, bit: int = 1) -> Callable[[Sealed], None]:
    def change(data: bytearray) -> None:
        data[offset] ^= bit

    return edit(stream, change)


def swap_segments(data: bytearray) -> None:
    data[MIB : 2 * MIB], data[2 * MIB : 3 * MIB] = data[2 * MIB : 3 * MIB], data[MIB : 2 * MIB]


def duplicate_segment(data: bytearray) -> None:
    data[2 * MIB : 3 * MIB] = data[MIB : 2 * MIB]


def drop_segment(data: bytearray) -> None:
    del data[MIB : 2 * MIB]


def drop_last_segment(data: bytearray) -> None:
    del data[3 * MIB :]


def append_segment(data: bytearray) -> None:
    data += data[2 * MIB : 3 * MIB]


def zero_segment(data: bytearray) -> None:
    data[MIB : 2 * MIB] = bytes(MIB)


def tell_sizes(sealed: Sealed) -> None:
    """The host makes the index agree with what it did."""
    sizes = [sealed.stream(n).stat().st_size for n in range(len(FILES) + 1)]
    rewrite_index(sealed.directory, streams=tuple(sizes))


def both(*attacks: Callable[[Sealed], None]) -> Callable[[Sealed], None]:
    def attack(sealed: Sealed) -> None:
        for one in attacks:
            one(sealed)

    return attack


def exchange_files(sealed: Sealed) -> None:
    one, two = sealed.stream(1).read_bytes(), sealed.stream(2).read_bytes()
    sealed.stream(1).write_bytes(two)
    sealed.stream(2).write_bytes(one)


def segment_of_other_file(sealed: Sealed) -> None:
    data = bytearray(sealed.stream(1).read_bytes())
    data[MIB : 2 * MIB] = sealed.stream(2).read_bytes()[MIB : 2 * MIB]
    sealed.stream(1).write_bytes(data)


def file_of_other_sealing(sealed: Sealed) -> None:
    other = seal_tree(sealed.directory.parent / "other", FILES)
    shutil.copy(other.stream(1), sealed.stream(1))


def old_manifest(sealed: Sealed) -> None:
    other = seal_tree(sealed.directory.parent / "other", FILES)
    shutil.copy(other.stream(0), sealed.stream(0))


def remove_stream(sealed: Sealed) -> None:
    sealed.stream(2).unlink()


def link_stream(sealed: Sealed) -> None:
    sealed.stream(2).rename(sealed.directory / "moved")
    sealed.stream(2).symlink_to("moved")


def fifo_stream(sealed: Sealed) -> None:
    sealed.stream(2).unlink()
    os.mkfifo(sealed.stream(2))


def index_without_file(sealed: Sealed) -> None:
    sizes = [sealed.stream(n).stat().st_size for n in range(len(FILES))]
    rewrite_index(sealed.directory, streams=tuple(sizes))


def index_with_file(sealed: Sealed) -> None:
    sealed.stream(5).write_bytes(bytes(56))
    sizes = [sealed.stream(n).stat().st_size for n in range(len(FILES) + 2)]
    rewrite_index(sealed.directory, streams=tuple(sizes))


def index_of_other_artifact(sealed: Sealed) -> None:
    rewrite_index(sealed.directory, artifact="bundle")


def index_of_other_commitment(sealed: Sealed) -> None:
    rewrite_index(sealed.directory, commitment="ab" * 32)


def index_removed(sealed: Sealed) -> None:
    (sealed.directory / "index.json").unlink()


def index_linked(sealed: Sealed) -> None:
    index_removed(sealed)
    (sealed.directory / "index.json").symlink_to("/dev/zero")


ATTACKS: dict[str, tuple[Callable[[Sealed], None], str]] = {
    "manifest_flipped": (flip(0, 60), "segment_invalid"),
    "manifest_tag_flipped": (flip(0, -1, 0x80), "segment_invalid"),
    "header_length": (flip(1, 0), "segment_invalid"),
    "header_salt": (flip(1, 1), "segment_invalid"),
    "header_prefix": (flip(1, 39), "segment_invalid"),
    "first_byte": (flip(1, 40), "segment_invalid"),
    "middle_byte": (flip(1, 2 * MIB + 77), "segment_invalid"),
    "tag": (flip(1, MIB - 1), "segment_invalid"),
    "last_byte": (flip(1, -1), "segment_invalid"),
    "last_file": (flip(4, 55), "segment_invalid"),
    "reordered": (edit(1, swap_segments), "segment_invalid"),
    "duplicated": (edit(1, duplicate_segment), "segment_invalid"),
    "zeroed": (edit(1, zero_segment), "segment_invalid"),
    "dropped": (edit(1, drop_segment), "stream_truncated"),
    "dropped_and_told": (both(edit(1, drop_segment), tell_sizes), "index_size_mismatch"),
    "last_dropped": (edit(1, drop_last_segment), "stream_truncated"),
    "last_dropped_and_told": (both(edit(1, drop_last_segment), tell_sizes), "index_size_mismatch"),
    "appended": (edit(1, append_segment), "stream_trailing"),
    "trailing_byte": (edit(1, lambda data: data.append(0)), "stream_trailing"),
    "truncated_byte": (edit(1, lambda data: data.__delitem__(-1)), "stream_truncated"),
    "truncated_header": (
        edit(3, lambda data: data.__delitem__(slice(20, None))),
        "stream_truncated",
    ),
    "emptied": (edit(1, lambda data: data.clear()), "stream_truncated"),
    "manifest_truncated": (edit(0, lambda data: data.__delitem__(-1)), "stream_truncated"),
    "manifest_truncated_and_told": (
        both(edit(0, lambda data: data.__delitem__(-1)), tell_sizes),
        "segment_invalid",
    ),
    "manifest_trailing": (edit(0, lambda data: data.append(0)), "stream_trailing"),
    "other_file": (exchange_files, "segment_invalid"),
    "segment_of_other_file": (segment_of_other_file, "segment_invalid"),
    "file_of_other_sealing": (file_of_other_sealing, "segment_invalid"),
    "manifest_of_other_sealing": (old_manifest, "segment_invalid"),
    "stream_removed": (remove_stream, "stream_missing"),
    "stream_linked": (link_stream, "stream_missing"),
    "stream_fifo": (fifo_stream, "stream_truncated"),
    "index_without_file": (index_without_file, "index_stream_count"),
    "index_with_file": (index_with_file, "index_stream_count"),
    "index_of_other_artifact": (index_of_other_artifact, "commitment_mismatch"),
    "index_of_other_commitment": (index_of_other_commitment, "commitment_mismatch"),
    "index_removed": (index_removed, "index_missing"),
    "index_linked": (index_linked, "index_missing"),
}


def test_there_are_attacks() -> None:
    assert len(ATTACKS) >= 35


@pytest.fixture(scope="module")
def sealed_once(tmp_path_factory: pytest.TempPathFactory) -> Sealed:
    return seal_tree(tmp_path_factory.mktemp("once"), FILES)


def copy_of(sealed: Sealed, place: Path) -> Sealed:
    shutil.copytree(sealed.directory, place / "sealed")
    return Sealed(place / "sealed", sealed.key, sealed.salt, sealed.commitment)


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_attack(tmp_path: Path, sealed_once: Sealed, name: str) -> None:
    attack, code = ATTACKS[name]
    sealed, memory = copy_of(sealed_once, tmp_path), MemfdMemory()
    attack(sealed)
    before = sorted(os.listdir("/proc/self/fd"))
    assert refused(lambda: sealed.open(memory, threads=3)).code == code
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert memory.wipe() == WipeReport(0, 0), "a failed opening wipes what it wrote"


@pytest.mark.root
@pytest.mark.parametrize("name", ["middle_byte", "last_file", "dropped"])
def test_attack_leaves_no_file(
    tmp_path: Path, sealed_once: Sealed, mount_tmpfs: MountTmpfs, name: str
) -> None:
    attack, code = ATTACKS[name]
    sealed, folder = copy_of(sealed_once, tmp_path), mount_tmpfs()
    attack(sealed)
    assert refused(lambda: sealed.open(TmpfsMemory(folder))).code == code
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"key": bytes(32)}, "segment_invalid"),
        ({"salt": bytes(32)}, "commitment_mismatch"),
        ({"commitment": "ab" * 32}, "commitment_mismatch"),
    ],
)
def test_wrong_secret(sealed_once: Sealed, changed: dict[str, object], code: str) -> None:
    assert refused(lambda: sealed_once.open(**changed)).code == code


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (ArtifactLimits(max_bytes=5), "artifact_too_large"),
        (ArtifactLimits(max_files=3), "artifact_too_many_files"),
    ],
)
def test_more_than_planned(sealed_once: Sealed, limits: ArtifactLimits, code: str) -> None:
    assert refused(lambda: sealed_once.open(limits=limits)).code == code


# Attacks by the owner, who holds the key and seals what he likes.


def entry(path: str = "a", content: bytes = b"x", **changed: object) -> dict[str, object]:
    return {**manifest_entry(path, content), **changed}


OWNERS: dict[str, tuple[dict[str, object], str]] = {
    "parent": ({"entries": [entry("../a")]}, "manifest_path_unsafe"),
    "absolute": ({"entries": [entry("/a")]}, "manifest_path_unsafe"),
    "duplicate": (
        {"entries": [entry(), entry()], "contents": [b"x"] * 2},
        "manifest_duplicate_path",
    ),
    "pickle": ({"entries": [entry("a.bin")], "artifact": "model"}, "model_pickle"),
    "model_code": ({"entries": [entry("a.py")], "artifact": "model"}, "model_file_kind"),
    "digest": ({"entries": [entry(blake3="ab" * 32)]}, "file_digest_mismatch"),
    "other_content": ({"contents": [b"y"]}, "file_digest_mismatch"),
    "size": ({"entries": [entry(size=2)]}, "index_size_mismatch"),
    "more_files": ({"entries": [entry(), entry("b")]}, "index_stream_count"),
    "fewer_files": ({"contents": [b"x", b"y"]}, "index_stream_count"),
    "oversize": ({"entries": [entry(size=2**40)]}, "artifact_too_large"),
    "other_artifact": ({"artifact": "bundle", "index_artifact": "suite"}, "manifest_mismatch"),
    "not_canonical": ({"manifest": b'{"type": 1}'}, "document_not_canonical"),
    "not_json": ({"manifest": b"\x80\x04K\x01."}, "document_not_json"),
    "empty_manifest": ({"manifest": b""}, "document_not_json"),
    "unknown_key": (
        {
            "manifest": print_canonical(
                {"type": MANIFEST_TYPE, "artifact": "suite", "files": [entry()], "run": "x"}
            )
        },
        "document_field_unknown",
    ),
}


@pytest.mark.parametrize("name", sorted(OWNERS))
def test_hostile_owner(tmp_path: Path, name: str) -> None:
    arguments, code = OWNERS[name]
    sealed = craft(tmp_path, **{"entries": [entry()], "contents": [b"x"], **arguments})  # type: ignore[arg-type]
    memory = MemfdMemory()
    limits = ArtifactLimits(max_bytes=2**30)
    assert refused(lambda: sealed.open(memory, limits=limits)).code == code
    assert memory.wipe() == WipeReport(0, 0)


def test_a_ciphertext_that_changes_under_the_opener(tmp_path: Path) -> None:
    """The host cuts a file after its size was looked at."""
    sealed = seal_tree(tmp_path, FILES)
    memory = MemfdMemory()
    from enclave.workload.opening import open_artifact
    from enclave.workload.segment_source import SealedDirectory

    class Cutting(SealedDirectory):
        def descriptor(self, stream: int) -> int:
            descriptor = super().descriptor(stream)
            if stream == 2:
                os.truncate(sealed.stream(1), MIB)
            return descriptor

    with Cutting(sealed.directory) as source:
        try:
            opened = open_artifact(
                source, sealed.key, sealed.salt, sealed.commitment, memory, ArtifactLimits(), 2
            )
        except SealedRefused as refusal:
            assert refusal.code == "stream_truncated"
            assert memory.wipe() == WipeReport(0, 0)
        else:
            assert read_opened(opened) == FILES  # the other thread was faster


def test_a_failing_progress_callback_wipes(tmp_path: Path) -> None:
    from enclave.workload.opening import open_artifact
    from enclave.workload.segment_source import SealedDirectory

    sealed, memory = seal_tree(tmp_path, FILES), MemfdMemory()

    def fail(_done: int, _total: int) -> None:
        raise RuntimeError

    with SealedDirectory(sealed.directory) as source, pytest.raises(RuntimeError):
        open_artifact(
            source,
            sealed.key,
            sealed.salt,
            sealed.commitment,
            memory,
            ArtifactLimits(),
            2,
            progress=fail,
        )
    assert memory.wipe() == WipeReport(0, 0)


def test_no_threads(sealed_once: Sealed) -> None:
    with pytest.raises(ValueError, match="thread"):
        sealed_once.open(threads=0)


def test_manifest_of_several_segments(tmp_path: Path) -> None:
    files = {f"{'n' * 200}/{number:05d}": b"" for number in range(3500)}
    entries = [manifest_entry(path, b"") for path in sorted(files)]
    sealed = craft(tmp_path, entries, [b""] * len(files))
    assert sealed.stream(0).stat().st_size > MIB
    assert refused(lambda: sealed.open(limits=ArtifactLimits(max_files=3))).code == (
        "artifact_too_many_files"
    )
    flip(0, MIB + 50)(sealed)
    assert refused(sealed.open).code == "segment_invalid"
    assert seal_stream(bytes(32), 0, b"") != b""
