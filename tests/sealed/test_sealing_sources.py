"""Folders that are not sealed: links, devices, odd names, and files that change meanwhile."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from enclave.clients.party.sealing import commit_folder, seal_artifact
from enclave.core.errors import Refusal
from enclave.core.sealed import ArtifactLimits
from tests.sealed.artifacts import FIRST, NEXT, write_tree

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
    "compatibility": (pair("ﬁ.txt", "fi.txt"), "model", "manifest_duplicate_path"),
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
