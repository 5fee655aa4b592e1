"""Keeping pages out of swap, core files and children."""

from __future__ import annotations

import ctypes
import mmap

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mlock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_MADV_WIPEONFORK = 18


def lock_mapping(mapping: mmap.mmap) -> bool:
    """Lock a writable mapping in memory; False if the limit does not allow it (RLIMIT_MEMLOCK)."""
    first = ctypes.c_char.from_buffer(mapping)
    try:
        return bool(_libc.mlock(ctypes.addressof(first), len(mapping)) == 0)
    finally:
        del first  # else the mapping could never be closed


class LockedBuffer:
    """Zeroed memory of `size` bytes: locked where the limit allows, in no core file, no child.

    `view` is the buffer; `locked` tells whether it can not be swapped.
    """

    def __init__(self, size: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._size = size
        self._mapping = mmap.mmap(-1, max(size, 1), flags=flags)
        self._mapping.madvise(mmap.MADV_DONTDUMP)
        self._mapping.madvise(_MADV_WIPEONFORK)
        self.locked = lock_mapping(self._mapping)
        self.view = memoryview(self._mapping)[:size]

    def wipe(self) -> None:
        """Overwrite with zeros; the buffer stays usable."""
        self.view[:] = bytes(self._size)

    def close(self) -> None:
        """Wipe and give back; views of it must be gone."""
        self.wipe()
        self.view.release()
        self._mapping.close()
