"""Sealing a folder: what is refused, what is left behind, that a changing source is noticed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from enclave.clients.party import sealing
from enclave.clients.party.sealing import SealedArtifact, commit_folder, seal_artifact
from enclave.core.errors import Refusal, SealedRefused
from enclave.core.sealed import parse_index
from tests.sealed.artifacts import FIRST, NEXT, Sealed, read_opened, seal_tree, write_tree
from tests.sealed.conftest import MountTmpfs

FILES = {
    "a.json": b"",
    "b.txt": b"short",
    "deep/er/c.txt": os.urandom(FIRST),
    "deep/d.txt": os.urandom(FIRST + NEXT + 1),
}


def refused(action: Callable[[], object]) -> Refusal:
    with pytest.raises(Refusal) as caught:
        action()
    return caught.value


def left_behind(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()} - {"source"}


def test_round_trip(tmp_path: Path) -> None:
    sealed = seal_tree(tmp_path, FILES)
    opened = sealed.open()
    assert read_opened(opened) == FILES
    assert [file.path for file in opened.files] == sorted(FILES)
    assert left_behind(tmp_path) == {"sealed"}
    index = parse_index((sealed.directory / "index.json").read_bytes())
    assert [path.name for path in sorted(sealed.directory.iterdir())] == [
        *(f"{stream:08d}.sealed" for stream in range(5)),
        "index.json",
    ]
    for stream, size in enumerate(index.streams):
        assert sealed.stream(stream).stat().st_size == size


def test_nothing_readable_by_others_and_no_plaintext(tmp_path: Path) -> None:
    canary = b"canary-5f2c9a"
    sealed = seal_tree(tmp_path, {"canary-name.txt": canary * 100})
    assert stat.S_IMODE(sealed.directory.stat().st_mode) == 0o700
    for path in sealed.directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        content = path.read_bytes()
        for secret in (b"canary", sealed.key, sealed.salt, sealed.key.hex().encode()):
            assert secret not in content


def test_secrets_are_not_printed(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", {"canary-name.txt": b"x"})
    sealed = seal_artifact(source, tmp_path / "sealed", "suite")
    for secret in ("canary", sealed.key.hex(), repr(sealed.key), repr(sealed.salt)):
        assert secret not in repr(sealed)


def test_two_sealings_share_nothing(tmp_path: Path) -> None:
    one, two = seal_tree(tmp_path / "1", FILES), seal_tree(tmp_path / "2", FILES)
    assert one.key != two.key
    assert one.commitment != two.commitment
    for stream in range(5):
        assert one.stream(stream).read_bytes()[:40] != two.stream(stream).read_bytes()[:40]
        assert one.stream(stream).read_bytes()[40:] != two.stream(stream).read_bytes()[40:]


def test_given_randomness_gives_given_bytes(tmp_path: Path) -> None:
    def counted() -> Callable[[int], bytes]:
        state = [0]

        def take(size: int) -> bytes:
            state[0] += 1
            return hashlib.shake_128(bytes([state[0]])).digest(size)

        return take

    source = write_tree(tmp_path / "source", FILES)
    for name in ("one", "two"):
        seal_artifact(source, tmp_path / name, "suite", randomness=counted())
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_thread_count_changes_nothing(tmp_path: Path, threads: int) -> None:
    source = write_tree(tmp_path / "source", FILES)
    sealed = seal_artifact(source, tmp_path / "sealed", "suite", threads=threads)
    found = Sealed(tmp_path / "sealed", sealed.key, sealed.salt, sealed.commitment)
    assert read_opened(found.open(threads=threads)) == FILES


def test_commit_folder_is_the_sealings_commitment(tmp_path: Path) -> None:
    sealed = seal_tree(tmp_path, FILES, "bundle")
    assert commit_folder(tmp_path / "source", "bundle", sealed.salt) == sealed.commitment
    (tmp_path / "source" / "b.txt").write_bytes(b"Short")
    assert commit_folder(tmp_path / "source", "bundle", sealed.salt) != sealed.commitment


def test_progress_counts_bytes(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    source = write_tree(tmp_path / "source", FILES)
    seal_artifact(source, tmp_path / "s", "suite", progress=lambda *at: seen.append(at))
    total = sum(map(len, FILES.values()))
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)


def test_the_key_can_be_kept_before_the_name_is_given(tmp_path: Path) -> None:
    source, kept = write_tree(tmp_path / "source", FILES), []

    def keep(sealed: SealedArtifact) -> None:
        assert not (tmp_path / "sealed").exists()
        kept.append(sealed.key)

    sealed = seal_artifact(source, tmp_path / "sealed", "suite", before_publish=keep)
    assert kept == [sealed.key]


# The destination.


def test_destination_is_never_overwritten(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", FILES)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_bytes(b"keep")
    (tmp_path / "file").write_bytes(b"keep")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("full", "file", "link"):
        refusal = refused(lambda n=name: seal_artifact(source, tmp_path / n, "suite"))
        assert refusal.code == "destination_exists"
    assert (tmp_path / "full" / "x").read_bytes() == b"keep"
    assert (tmp_path / "file").read_bytes() == b"keep"


def test_destination_that_appears_meanwhile(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", FILES)

    def race(_sealed: SealedArtifact) -> None:
        write_tree(tmp_path / "sealed", {"x": b"keep"})

    refusal = refused(
        lambda: seal_artifact(source, tmp_path / "sealed", "suite", before_publish=race)
    )
    assert refusal.code == "destination_exists"
    assert left_behind(tmp_path) == {"sealed"}
    assert (tmp_path / "sealed" / "x").read_bytes() == b"keep"


def test_two_sealings_at_once(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", FILES)
    inner: list[str] = []

    def again(_sealed: SealedArtifact) -> None:
        inner.append(refused(lambda: seal_artifact(source, tmp_path / "o", "suite")).code)

    seal_artifact(source, tmp_path / "o", "suite", before_publish=again)
    assert inner == ["destination_busy"]


def test_foreign_files_in_the_unfinished_directory(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", FILES)
    write_tree(tmp_path / ".o.sealing", {"thesis.txt": b"keep"})
    assert refused(lambda: seal_artifact(source, tmp_path / "o", "suite")).code == (
        "destination_foreign"
    )
    assert (tmp_path / ".o.sealing" / "thesis.txt").read_bytes() == b"keep"


def test_no_place_for_the_destination(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", FILES)
    refusal = refused(lambda: seal_artifact(source, tmp_path / "none" / "o", "suite"))
    assert refusal.code == "destination_unwritable"


@pytest.mark.root
def test_disk_full(tmp_path: Path, mount_tmpfs: MountTmpfs) -> None:
    source = write_tree(tmp_path / "source", {"a": os.urandom(4 * 2**20), "b": b"b"})
    disk = mount_tmpfs("size=2m")
    refusal = refused(lambda: seal_artifact(source, disk / "o", "suite"))
    assert refusal.code == "destination_full"
    assert list(disk.iterdir()) == []


def test_interruption_leaves_nothing(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", FILES)

    def interrupt(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        seal_artifact(source, tmp_path / "sealed", "suite", progress=interrupt)
    assert left_behind(tmp_path) == set()


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    source = write_tree(tmp_path / "source", FILES)
    seal_artifact(source, tmp_path / "sealed", "suite")
    (source / "link").symlink_to("x")
    for name in ("sealed", "other"):
        with pytest.raises(SealedRefused):
            seal_artifact(source, tmp_path / name, "suite")
    (source / "link").unlink()
    for size in (5, 3 * NEXT):

        def progress(done: int, _total: int, size: int = size) -> None:
            if done > FIRST:
                os.truncate(source / "deep/d.txt", size)

        with pytest.raises(SealedRefused):
            seal_artifact(source, tmp_path / "other", "suite", progress=progress)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_many_small_files(tmp_path: Path) -> None:
    files = {f"{number // 30}/{number}.txt": b"%d" % number for number in range(200)}
    assert read_opened(seal_tree(tmp_path, files).open()) == files
    assert sealing.SealedArtifact is SealedArtifact
