"""Protected memory in a private tmpfs: huge pages, never swapped. Its launcher mounted it."""

from __future__ import annotations

import os
from pathlib import Path

from enclave.core.errors import SealedRefused
from enclave.workload.memory.mounts import open_noswap_tmpfs
from enclave.workload.memory.protected import (
    FileList,
    WipeReport,
    typed_memory_errors,
    write_fully,
)
from enclave.workload.memory.wiping import overwrite_descriptor, verify_zeros

_READ_WRITE = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_FRESH = _READ_WRITE | os.O_CREAT | os.O_EXCL


class TmpfsMemory:
    """Files in a directory that is a tmpfs mounted `noswap`, mode 0700, this user's.

    `wipe` closes the directory too, so that it can be unmounted; no file can be made after.
    Raises IsolationRefused `memory_not_tmpfs`, `memory_swappable`, `memory_shared`.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = open_noswap_tmpfs(directory)
        self._files = FileList()

    def create(self, name: str, size: int) -> TmpfsFile:
        """A new file with all its space reserved."""
        if self._folder < 0:
            raise ValueError("wiped memory")
        self._files.claim(name)
        file = TmpfsFile(self._folder, name, size)
        self._files.add(name, file)
        return file

    def discard(self, name: str) -> int:
        return self._files.discard(name)

    def wipe(self) -> WipeReport:
        """Wipe and remove every file, close every descriptor."""
        try:
            return self._files.wipe()
        finally:
            if self._folder >= 0:
                os.close(self._folder)
                self._folder = -1


class TmpfsFile:
    """One file; see `ProtectedFile`."""

    def __init__(self, folder: int, name: str, size: int) -> None:
        self.size = size
        self._name = name
        self._folder = folder
        with typed_memory_errors(size):
            try:
                self._descriptor = os.open(name, _FRESH, 0o600, dir_fd=folder)
            except FileExistsError:
                raise SealedRefused(
                    "memory_name_taken", expected="each file once", got=name
                ) from None
            try:
                if size:
                    # Full memory is told before anything is decrypted into it.
                    os.posix_fallocate(self._descriptor, 0, size)
            except BaseException:
                os.close(self._descriptor)
                os.unlink(name, dir_fd=folder)
                raise

    def write(self, data: memoryview, offset: int) -> None:
        with typed_memory_errors(self.size):
            write_fully(self._descriptor, data, offset)

    def seal_read_only(self) -> int:
        """End writing; a tmpfs file cannot be sealed, so only this user could reopen it."""
        with typed_memory_errors(self.size):
            os.fchmod(self._descriptor, 0o444)
            reading = os.open(f"/proc/self/fd/{self._descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        os.close(self._descriptor)
        self._descriptor = reading
        return reading

    def wipe(self) -> int:
        if self._descriptor < 0:
            return 0
        try:
            os.fchmod(self._descriptor, 0o600)
            writing = os.open(self._name, _READ_WRITE, dir_fd=self._folder)
            try:
                overwrite_descriptor(writing, self.size)
                verify_zeros(writing, self.size, self._name)
            finally:
                os.close(writing)
        finally:
            os.close(self._descriptor)
            self._descriptor = -1
            os.unlink(self._name, dir_fd=self._folder)
        return self.size
