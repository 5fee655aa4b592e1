"""What the opener asks of protected memory, and what wiping reports."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from enclave.core.errors import IsolationRefused, SealedRefused

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}\Z")
_FULL = (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class WipeReport:
    """How many files and bytes were overwritten with zeros, read back and given up."""

    files: int
    bytes: int


class ProtectedFile(Protocol):
    """One file in protected memory: written in any order, then sealed, then wiped."""

    @property
    def size(self) -> int: ...

    def write(self, data: memoryview, offset: int) -> None:
        """Write at `offset`; threads may write different parts. Refusal `memory_full`."""

    def seal_read_only(self) -> int:
        """End writing. A read-only descriptor, owned by this file until it is wiped.

        Its mode lets every user read through `/proc/self/fd/N`, and nobody write.
        """

    def wipe(self) -> int:
        """Overwrite with zeros, read back, close; returns the bytes. Refusal `wipe_incomplete`."""


class ProtectedMemory(Protocol):
    """Where artifacts are opened to."""

    def create(self, name: str, size: int) -> ProtectedFile:
        """A new file of `size` bytes, space reserved where that can be.

        Raises SealedRefused `memory_full`, `memory_name_taken`, `memory_descriptors`.
        """

    def discard(self, name: str) -> int:
        """Wipe and forget one file; its name is free again. Refusal `wipe_incomplete`."""

    def wipe(self) -> WipeReport:
        """Wipe every file and close every descriptor. Refusal `wipe_incomplete`, after all."""


class FileList:
    """The files of one memory, wiped together."""

    def __init__(self) -> None:
        self._files: dict[str, ProtectedFile] = {}

    def claim(self, name: str) -> str:
        """A well-formed name nobody has yet; refusal `memory_name_taken`."""
        if _NAME.match(name) is None:
            raise ValueError("malformed name in protected memory")
        if name in self._files:
            raise SealedRefused("memory_name_taken", expected="each file once", got=name)
        return name

    def add(self, name: str, file: ProtectedFile) -> None:
        self._files[name] = file

    def discard(self, name: str) -> int:
        """Wipe one and forget it."""
        try:
            return self._files.pop(name).wipe()
        except OSError:
            raise wipe_incomplete(name) from None

    def wipe(self) -> WipeReport:
        """Wipe all, also after one failed."""
        wiped, failed = 0, []
        for name, file in self._files.items():
            try:
                wiped += file.wipe()
            except (OSError, IsolationRefused):
                failed.append(name)
        report = WipeReport(len(self._files), wiped)
        self._files.clear()
        if failed:
            raise wipe_incomplete(failed[0])
        return report


def wipe_incomplete(name: str) -> IsolationRefused:
    """The refusal `wipe_incomplete`."""
    return IsolationRefused("wipe_incomplete", expected="zeros in every byte", got=name)


@contextmanager
def typed_memory_errors(size: int) -> Iterator[None]:
    """Turn OSErrors into `memory_full`, `memory_descriptors` or `memory_failed`."""
    try:
        yield
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "EIO")
        if error.errno in _FULL:
            raise SealedRefused(
                "memory_full",
                expected=f"{size} bytes of protected memory",
                got=name,
                hint="give the enclave more memory, or plan a smaller artifact",
            ) from None
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise SealedRefused(
                "memory_descriptors",
                expected="a file descriptor for each opened file",
                got=name,
                hint="raise the limit of open files (ulimit -n)",
            ) from None
        raise SealedRefused(
            "memory_failed", expected="working protected memory", got=name
        ) from None


def write_fully(descriptor: int, data: memoryview, offset: int) -> None:
    """Write all of `data`; full memory shows as a short write first."""
    while data:
        written = os.pwrite(descriptor, data, offset)
        data = data[written:]
        offset += written
