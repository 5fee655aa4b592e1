"""Protected memory in memfds: small pages, no root needed, sealed against every writer.

F_SEAL_FUTURE_WRITE instead of F_SEAL_WRITE: the one mapping made before stays
writable, and only through it can the content be overwritten at the end.
Nobody else can write: not through a descriptor, a new mapping or a reopened one.
Where the machine has swap a memfd is locked, as far as the memory lock limit allows.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os

from enclave.workload.isolation.swap import swap_in_use
from enclave.workload.memory.locking import lock_mapping
from enclave.workload.memory.protected import (
    FileList,
    WipeReport,
    typed_memory_errors,
    write_fully,
)
from enclave.workload.memory.wiping import overwrite_buffer, overwrite_descriptor, verify_zeros

_F_SEAL_FUTURE_WRITE = 0x0010
_MFD_NOEXEC_SEAL = 0x0008
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | _F_SEAL_FUTURE_WRITE


class MemfdMemory:
    """Anonymous files; see `ProtectedMemory`."""

    def __init__(self) -> None:
        self._files = FileList()

    def create(self, name: str, size: int) -> MemfdFile:
        self._files.claim(name)
        file = MemfdFile(name, size)
        self._files.add(name, file)
        return file

    def discard(self, name: str) -> int:
        return self._files.discard(name)

    def wipe(self) -> WipeReport:
        return self._files.wipe()


class MemfdFile:
    """One memfd; see `ProtectedFile`. `swappable` tells whether it may reach a swap device."""

    def __init__(self, name: str, size: int) -> None:
        self.size = size
        self.swappable = True
        self._name = name
        self._mapping: mmap.mmap | None = None
        with typed_memory_errors(size):
            self._descriptor = _create_memfd(name)
            try:
                os.ftruncate(self._descriptor, size)
            except BaseException:
                os.close(self._descriptor)
                raise

    def write(self, data: memoryview, offset: int) -> None:
        with typed_memory_errors(self.size):
            write_fully(self._descriptor, data, offset)

    def seal_read_only(self) -> int:
        """End writing for everybody; the kernel holds it."""
        with typed_memory_errors(self.size):
            if self.size:
                self._mapping = mmap.mmap(self._descriptor, self.size)
                # Locking maps every page, a tenth of the time that opening takes.
                self.swappable = swap_in_use() and not lock_mapping(self._mapping)
            os.fchmod(self._descriptor, 0o444)
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, _SEALS)
            reading = os.open(f"/proc/self/fd/{self._descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        os.close(self._descriptor)
        self._descriptor = reading
        return reading

    def wipe(self) -> int:
        if self._descriptor < 0:
            return 0
        try:
            if self._mapping is None:
                overwrite_descriptor(self._descriptor, self.size)
            else:
                with memoryview(self._mapping) as buffer:
                    overwrite_buffer(buffer)
                self._mapping.close()
            verify_zeros(self._descriptor, self.size, self._name)
        finally:
            os.close(self._descriptor)
            self._descriptor = -1
            self._mapping = None
        return self.size


def _create_memfd(name: str) -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create(name, flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:  # Linux before 6.3 does not know the flag
            raise
    return os.memfd_create(name, flags)
