"""Attacks by the host on ciphertext, each with its code, and nothing left after."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from enclave.core.errors import Refusal
from enclave.core.sealed import ArtifactLimits
from enclave.workload.memory.memfd import MemfdMemory
from enclave.workload.memory.protected import WipeReport
from enclave.workload.memory.tmpfs import TmpfsMemory
from tests.sealed.artifacts import (
    FOUR_FILES as FILES,
)
from tests.sealed.artifacts import (
    Sealed,
    rewrite_index,
    seal_tree,
)
from tests.sealed.conftest import MountTmpfs

MIB = 1024 * 1024


def refused(action: Callable[[], object]) -> Refusal:
    with pytest.raises(Refusal) as caught:
        action()
    return caught.value


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
