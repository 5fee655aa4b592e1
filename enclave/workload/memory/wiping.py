"""Overwriting with zeros and reading back."""

from __future__ import annotations

import os

from enclave.workload.memory.protected import wipe_incomplete, write_fully

_CHUNK = 1024 * 1024
_ZEROS = memoryview(bytes(_CHUNK))


def overwrite_descriptor(descriptor: int, size: int) -> None:
    """Overwrite the first `size` bytes of a file with zeros."""
    for start in range(0, size, _CHUNK):
        write_fully(descriptor, _ZEROS[: min(_CHUNK, size - start)], start)


def overwrite_buffer(buffer: memoryview) -> None:
    """Overwrite a buffer with zeros."""
    size = len(buffer)
    for start in range(0, size, _CHUNK):
        end = min(start + _CHUNK, size)
        buffer[start:end] = _ZEROS[: end - start]


def verify_zeros(descriptor: int, size: int, name: str) -> None:
    """Read a file back; refusal `wipe_incomplete` unless it is `size` zeros and nothing else."""
    buffer = bytearray(_CHUNK)
    view = memoryview(buffer)
    seen = 0
    while count := os.preadv(descriptor, [view], seen):
        if view[:count] != _ZEROS[:count]:
            raise wipe_incomplete(name)
        seen += count
    if seen != size:
        raise wipe_incomplete(name)
