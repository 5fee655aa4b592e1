"""Where the opener reads ciphertext from, and a sealed directory as such a place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol, Self

from enclave.core.errors import SealedRefused
from enclave.core.sealed.index import INDEX_NAME, MAX_INDEX_BYTES, SealedIndex, stream_name
from enclave.core.sealed.index import parse_index as parse_index_bytes

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class SegmentSource(Protocol):
    """The ciphertext of one artifact. Untrusted: whatever it yields is verified."""

    index: SealedIndex

    def descriptor(self, stream: int) -> int:
        """A read-only descriptor of one stream, owned by the source; read with pread only."""


class SealedDirectory:
    """A `SegmentSource` over the directory that sealing made. Close it after opening.

    Raises SealedRefused `index_missing` and what `parse_index` raises.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptors: dict[int, int] = {}
        try:
            descriptor = os.open(directory / INDEX_NAME, _READ)
        except OSError:
            raise SealedRefused(
                "index_missing", expected=f"a sealed artifact in {directory}"
            ) from None
        try:
            self.index = parse_index_bytes(os.pread(descriptor, MAX_INDEX_BYTES + 1, 0))
        finally:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def descriptor(self, stream: int) -> int:
        """Refusal `stream_missing`."""
        if stream not in self._descriptors:
            try:
                self._descriptors[stream] = os.open(self._directory / stream_name(stream), _READ)
            except OSError:
                raise SealedRefused(
                    "stream_missing", expected=stream_name(stream), got="none"
                ) from None
        return self._descriptors[stream]

    def close(self) -> None:
        """Close every descriptor given out."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])
