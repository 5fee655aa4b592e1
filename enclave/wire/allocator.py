"""The C allocator, told to reuse the megabyte buffers of an upload.

glibc's defaults give each thread an arena that keeps its peak, or map and unmap
every buffer (a page fault for each 4 KiB).  One arena with a high mapping
threshold keeps memory flat and costs a third of the CPU.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def keep_memory_flat() -> None:
    """Set it for this process; where the C library has no mallopt nothing happens."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return
    mallopt(_M_ARENA_MAX, 1)
    mallopt(_M_MMAP_THRESHOLD, 32 * 1024 * 1024)
    mallopt(_M_TRIM_THRESHOLD, 64 * 1024 * 1024)
