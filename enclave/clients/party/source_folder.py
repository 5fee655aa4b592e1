"""A folder about to be sealed: listed without following links, read as it was listed."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from enclave.core.errors import Refusal, SealedRefused
from enclave.core.sealed.manifest import ArtifactLimits, refuse_file_count, refuse_total_size
from enclave.core.sealed.model_files import refuse_unsafe_model_file
from enclave.core.sealed.paths import (
    MAX_DEPTH,
    parse_input_path,
    parse_path,
    refuse_colliding_paths,
)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO that took a file's place must not wait for a writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_SHOWN = 80


@dataclass(frozen=True)
class SourceFile:
    """A regular file: relative path, size in bytes, and what tells that it changed."""

    path: str
    size: int
    identity: tuple[int, ...]


class SourceFolder:
    """The files of a folder, ordered by path, refused unless all can be sealed.

    Refusals name files, for they stay on the party's own machine.  Raises SealedRefused:
    `source_not_folder`, `source_link`, `source_special`, `source_unreadable`,
    `manifest_path_unsafe`, `manifest_duplicate_path`, `artifact_empty`,
    `artifact_too_many_files`, `artifact_too_large`; ModelRefused `model_pickle`,
    `model_file_kind` for a model.
    """

    def __init__(self, folder: Path, artifact: str, limits: ArtifactLimits) -> None:
        self._limits = limits
        try:
            self._root = os.open(folder, _FOLDER & ~os.O_NOFOLLOW)
        except OSError as error:
            raise SealedRefused(
                "source_not_folder", expected="a folder", got=_show(str(folder), error)
            ) from None
        try:
            self.files = self._list()
            _refuse_unsafe(self.files, artifact)
            refuse_file_count(len(self.files), limits.max_files)
            refuse_total_size(self.total_bytes, limits.max_bytes)
        except BaseException:
            os.close(self._root)
            raise

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)

    def close(self) -> None:
        os.close(self._root)

    @contextlib.contextmanager
    def open_file(self, file: SourceFile) -> Iterator[int]:
        """A read-only descriptor; refusal `source_changed` if it is or becomes another file."""
        folder = os.dup(self._root)
        try:
            *parents, name = file.path.split("/")
            for parent in parents:
                above, folder = folder, os.open(parent, _FOLDER, dir_fd=folder)
                os.close(above)
            descriptor = os.open(name, _FILE, dir_fd=folder)
        except OSError as error:
            raise changed(file.path, error) from None
        finally:
            os.close(folder)
        try:
            _refuse_changed(file, descriptor)
            yield descriptor
            _refuse_changed(file, descriptor)
        finally:
            os.close(descriptor)

    def refuse_other_listing(self) -> None:
        """Refuse `source_changed` if files came, went or changed since the listing."""
        if self._list() != self.files:
            raise changed("the folder")

    def _list(self) -> tuple[SourceFile, ...]:
        found: list[SourceFile] = []
        self._collect(self._root, "", found, MAX_DEPTH)
        return tuple(sorted(found, key=lambda file: file.path))

    def _collect(self, folder: int, prefix: str, found: list[SourceFile], depth: int) -> None:
        try:
            names = sorted(os.listdir(folder))
            for name in names:
                path = prefix + name
                facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(facts.st_mode):
                    found.append(SourceFile(path, facts.st_size, _identify(facts)))
                    # Bounded here too: a folder chosen by mistake may be a whole disk.
                    if len(found) > self._limits.max_files:
                        refuse_file_count(len(found), self._limits.max_files)
                elif stat.S_ISDIR(facts.st_mode) and depth > 1:
                    inner = os.open(name, _FOLDER, dir_fd=folder)
                    try:
                        self._collect(inner, path + "/", found, depth - 1)
                    finally:
                        os.close(inner)
                else:
                    raise _unsealable(path, facts.st_mode)
        except OSError as error:
            raise SealedRefused(
                "source_unreadable", expected="files and folders", got=_show(prefix, error)
            ) from None


def changed(path: str, error: OSError | None = None) -> SealedRefused:
    """The refusal `source_changed`."""
    return SealedRefused(
        "source_changed",
        expected="a folder that nobody writes to while it is sealed",
        got=_show(path, error),
        hint="wait until it is complete, then seal again",
    )


def _refuse_unsafe(files: tuple[SourceFile, ...], artifact: str) -> None:
    for file in files:
        _named(file.path, lambda path=file.path: parse_path(path, "file"))  # type: ignore[misc]
        if artifact == "model":
            refuse_unsafe_model_file(file.path, _show(file.path))
        else:
            _named(file.path, lambda path=file.path: parse_input_path(path, "file"))  # type: ignore[misc]
    refuse_colliding_paths(file.path for file in files)


def _named(path: str, rule: Callable[[], object]) -> None:
    try:
        rule()
    except Refusal as refusal:
        refusal.got = f"{_show(path)}: {refusal.got.partition(': ')[2]}"
        raise


def _refuse_changed(file: SourceFile, descriptor: int) -> None:
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or _identify(facts) != file.identity:
        raise changed(file.path)


def _identify(facts: os.stat_result) -> tuple[int, ...]:
    return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


def _unsealable(path: str, mode: int) -> SealedRefused:
    if stat.S_ISLNK(mode):
        code, kind = "source_link", "a symbolic link"
    elif stat.S_ISDIR(mode):
        code, kind = "source_special", f"a folder deeper than {MAX_DEPTH}"
    else:
        code, kind = "source_special", "a device, socket or FIFO"
    return SealedRefused(
        code,
        expected="regular files and folders",
        got=f"{_show(path)}: {kind}",
        hint="put a copy of the file there, or leave it out",
    )


def _show(path: str, error: OSError | None = None) -> str:
    reason = "" if error is None else f": {errno.errorcode.get(error.errno or 0, 'EIO')}"
    return ascii(path[:_MAX_SHOWN]) + reason
