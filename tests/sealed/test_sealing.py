"""Sealing a folder: what is refused, what is left behind, that a changing source is noticed."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from enclave.clients.party import sealing
from enclave.clients.party.sealing import SealedArtifact, commit_folder, seal_artifact
from enclave.core.errors import Refusal, SealedRefused
from enclave.core.sealed import ArtifactLimits, parse_index
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


# What a folder may not hold.


def link(folder: Path) -> None:
    (folder / "x.txt").symlink_to("/etc/hostname")


def link_inside(folder: Path) -> None:
    (folder / "x.txt").symlink_to("b.txt")


def folder_link(folder: Path) -> None:
    (folder / "x").symlink_to("deep")


def fifo(folder: Path) -> None:
    os.mkfifo(folder / "x.txt")


def unix_socket(folder: Path) -> None:
    here = Path.cwd()
    os.chdir(folder)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("x.txt")
    finally:
        os.chdir(here)


def device(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("making a device needs root")
    os.mknod(folder / "x.txt", stat.S_IFCHR | 0o600, os.makedev(1, 5))


def raw_name(name: bytes) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        os.close(os.open(os.fsencode(folder) + b"/" + name, os.O_CREAT | os.O_WRONLY))

    return make


def deep_folder(folder: Path) -> None:
    (folder / "/".join("x" * 17)).mkdir(parents=True)


def deep_file(folder: Path) -> None:
    write_tree(folder, {"/".join("x" * 17): b""})


def pair(one: str, two: str) -> Callable[[Path], None]:
    return lambda folder: write_tree(folder, {one: b"1", two: b"2"}) and None  # type: ignore[return-value]


SOURCES: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "link": (link, "suite", "source_link"),
    "link_inside": (link_inside, "suite", "source_link"),
    "folder_link": (folder_link, "suite", "source_link"),
    "fifo": (fifo, "suite", "source_special"),
    "socket": (unix_socket, "suite", "source_special"),
    "device": (device, "suite", "source_special"),
    "deep_folder": (deep_folder, "suite", "source_special"),
    "deep_file": (deep_file, "suite", "source_special"),
    "not_utf8": (raw_name(b"\xff.txt"), "suite", "manifest_path_unsafe"),
    "control": (raw_name(b"a\nb.txt"), "suite", "manifest_path_unsafe"),
    "backslash": (raw_name(b"a\\b.txt"), "suite", "manifest_path_unsafe"),
    "not_nfc": (raw_name("e\u0301.txt".encode()), "suite", "manifest_path_unsafe"),
    "case": (pair("X.txt", "x.txt"), "suite", "manifest_duplicate_path"),
    "compatibility": (pair("ﬁ.txt", "fi.txt"), "suite", "manifest_duplicate_path"),
    "pickle": (raw_name(b"pytorch_model.bin"), "model", "model_pickle"),
    "code": (raw_name(b"modeling.py"), "model", "model_file_kind"),
}


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_source_is_refused(tmp_path: Path, name: str) -> None:
    make, artifact, code = SOURCES[name]
    source = write_tree(tmp_path / "source", {"b.txt": b"b", "deep/c.txt": b"c"})
    make(source)
    refusal = refused(lambda: seal_artifact(source, tmp_path / "sealed", artifact))
    assert refusal.code == code
    assert str(refusal).isascii()
    assert str(refusal).isprintable()
    assert left_behind(tmp_path) == set()
    assert refused(lambda: commit_folder(source, artifact, bytes(32))).code == code


def test_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for source in (tmp_path / "none", tmp_path / "file"):
        assert refused(lambda s=source: seal_artifact(s, tmp_path / "o", "suite")).code == (
            "source_not_folder"
        )


def test_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "source" / "empty").mkdir(parents=True)
    refusal = refused(lambda: seal_artifact(tmp_path / "source", tmp_path / "o", "suite"))
    assert refusal.code == "artifact_empty"


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (ArtifactLimits(max_bytes=4), "artifact_too_large"),
        (ArtifactLimits(max_files=1), "artifact_too_many_files"),
    ],
)
def test_limits(tmp_path: Path, limits: ArtifactLimits, code: str) -> None:
    source = write_tree(tmp_path / "source", {"a": b"123", "b": b"45"})
    refusal = refused(lambda: seal_artifact(source, tmp_path / "o", "suite", limits=limits))
    assert refusal.code == code
    assert left_behind(tmp_path) == set()


def test_no_such_artifact(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="weights"):
        seal_artifact(tmp_path, tmp_path / "o", "weights")


# A source that changes while it is sealed.


def append(folder: Path) -> None:
    with (folder / "deep/d.txt").open("ab") as file:
        file.write(b"x")


def truncate(folder: Path) -> None:
    os.truncate(folder / "deep/d.txt", 5)


def overwrite(folder: Path) -> None:
    with (folder / "deep/d.txt").open("r+b") as file:
        file.write(b"x")


def overwrite_sealed_already(folder: Path) -> None:
    (folder / "b.txt").write_bytes(b"other")


def replace(folder: Path) -> None:
    (folder / "new").write_bytes(FILES["deep/d.txt"])
    (folder / "new").replace(folder / "deep/d.txt")


def replace_by_link(folder: Path) -> None:
    (folder / "deep/d.txt").rename(folder / "moved")
    (folder / "deep/d.txt").symlink_to("../moved")


def replace_by_fifo(folder: Path) -> None:
    (folder / "deep/d.txt").unlink()
    os.mkfifo(folder / "deep/d.txt")


def replace_folder_by_link(folder: Path) -> None:
    (folder / "deep").rename(folder.parent / "moved")
    (folder / "deep").symlink_to("../moved")


def remove(folder: Path) -> None:
    (folder / "deep/d.txt").unlink()


def add(folder: Path) -> None:
    (folder / "new.txt").write_bytes(b"")


CHANGES = [
    append,
    truncate,
    overwrite,
    overwrite_sealed_already,
    replace,
    replace_by_link,
    replace_by_fifo,
    replace_folder_by_link,
    remove,
    add,
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("at", ["first segment", "last file"])
def test_changing_source(tmp_path: Path, change: Callable[[Path], None], at: str) -> None:
    source = write_tree(tmp_path / "source", FILES)
    # The first call comes after `b.txt`; the other when `d.txt` is half read.
    trigger = [len(FILES["b.txt"]), 5 + FIRST + NEXT][at == "last file"]
    changed: list[int] = []

    def progress(done: int, _total: int) -> None:
        if done >= trigger and not changed:
            changed.append(done)
            change(source)

    refusal = refused(
        lambda: seal_artifact(source, tmp_path / "sealed", "suite", progress=progress)
    )
    assert changed
    assert refusal.code in {"source_changed", "source_link", "source_special"}
    assert not (tmp_path / "sealed").exists()
    assert not (tmp_path / ".sealed.sealing").exists()


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
    for change in (append, truncate):

        def progress(done: int, _total: int, change: Callable[[Path], None] = change) -> None:
            if done > FIRST:
                change(source)

        with pytest.raises(SealedRefused):
            seal_artifact(source, tmp_path / "other", "suite", progress=progress)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_many_small_files(tmp_path: Path) -> None:
    files = {f"{number // 30}/{number}.txt": b"%d" % number for number in range(200)}
    assert read_opened(seal_tree(tmp_path, files).open()) == files
    assert sealing.SealedArtifact is SealedArtifact
