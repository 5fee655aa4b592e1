"""A key that can be wiped."""

from __future__ import annotations

from enclave.workload.memory.locking import LockedBuffer


class SecretKey:
    """Holds key bytes in locked memory until `wipe`; never printed, never pickled.

    Libraries that are given the key make copies of their own: wiping here shortens
    how long the key is there, it does not prove that no copy is left.
    """

    def __init__(self, key: bytes | bytearray | memoryview) -> None:
        self._buffer: LockedBuffer | None = LockedBuffer(memoryview(key).nbytes)
        self._buffer.view[:] = key
        if isinstance(key, bytearray):
            key[:] = bytes(len(key))

    @property
    def view(self) -> memoryview:
        """The key; ValueError once it is wiped. Do not keep it."""
        if self._buffer is None:
            raise ValueError("wiped key")
        return self._buffer.view

    @property
    def locked(self) -> bool:
        """Whether the key can not be swapped."""
        return self._buffer is not None and self._buffer.locked

    def wipe(self) -> None:
        """Overwrite with zeros and give up; again is harmless."""
        if self._buffer is not None:
            self._buffer.wipe()
            self._buffer = None

    def __repr__(self) -> str:
        return "SecretKey(…)"

    def __reduce__(self) -> str:
        raise TypeError("a secret key is not pickled")
