"""The directory that sealing writes: under a temporary name until it is complete and durable.

A crash leaves `.NAME.sealing`, which nothing opens and the next sealing to NAME
replaces; NAME itself is there whole or not at all.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from enclave.core.errors import SealedRefused
from enclave.core.sealed.index import INDEX_NAME, stream_name

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OURS = re.compile(r"(?:[0-9]{8}\.sealed|index\.json)\Z")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class SealedOutput:
    """The unfinished directory. Use within `open_output`.

    Every method raises SealedRefused `destination_full` or `destination_unwritable`.
    """

    def __init__(self, folder: int, partial: Path, destination: Path) -> None:
        self._folder = folder
        self._place = partial
        self._destination = destination

    def create_stream(self, stream: int) -> int:
        """A descriptor to write one stream to."""
        with typed_write_errors(self._destination):
            return os.open(stream_name(stream), _FRESH, 0o600, dir_fd=self._folder)

    def write(self, descriptor: int, data: memoryview, offset: int) -> None:
        """Write all of `data` at `offset`; a full disk shows as a short write first."""
        with typed_write_errors(self._destination):
            while data:
                written = os.pwrite(descriptor, data, offset)
                data = data[written:]
                offset += written

    def sync_and_close(self, descriptor: int) -> None:
        """Make a stream durable."""
        with typed_write_errors(self._destination):
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def write_index(self, data: bytes) -> None:
        """Write index.json, last of all."""
        with typed_write_errors(self._destination):
            descriptor = os.open(INDEX_NAME, _FRESH, 0o600, dir_fd=self._folder)
            try:
                self.write(descriptor, memoryview(data), 0)
            finally:
                self.sync_and_close(descriptor)
            os.fsync(self._folder)

    def publish(self) -> None:
        """Give the complete directory its name, durably. Refusal `destination_exists`."""
        with typed_write_errors(self._destination):
            try:
                self._place.rename(self._destination)
            except OSError as error:
                if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise _exists(self._destination) from None
                raise
            self._place = self._destination
            parent = os.open(self._destination.parent, _FOLDER & ~os.O_NOFOLLOW)
            try:
                os.fsync(parent)
            finally:
                os.close(parent)

    def empty(self) -> None:
        """Remove what a sealing wrote; refusal `destination_foreign` for anything else."""
        names = os.listdir(self._folder)
        foreign = [name for name in names if _OURS.match(name) is None]
        if foreign:
            raise SealedRefused(
                "destination_foreign",
                expected=f"{self._place} to hold an unfinished sealing only",
                got=ascii(foreign[0][:80]),
                hint="remove it by hand",
            )
        for name in names:
            os.unlink(name, dir_fd=self._folder)

    def discard(self) -> None:
        """Remove the directory."""
        self.empty()
        self._place.rmdir()


@contextmanager
def open_output(destination: Path) -> Iterator[SealedOutput]:
    """A fresh unfinished directory for `destination`, removed again if the block fails.

    Raises SealedRefused: `destination_exists`, `destination_busy` (another sealing at work),
    `destination_foreign`, `destination_full`, `destination_unwritable`.
    """
    destination = destination.absolute()
    partial = destination.with_name(f".{destination.name}.sealing")
    with typed_write_errors(destination):
        if os.path.lexists(destination) and not _is_empty_folder(destination):
            raise _exists(destination)
        folder = _lock_partial(partial)
    try:
        output = SealedOutput(folder, partial, destination)
        with typed_write_errors(destination):
            output.empty()
        try:
            yield output
        except BaseException:
            with typed_write_errors(destination):
                output.discard()
            raise
    finally:
        os.close(folder)


@contextmanager
def typed_write_errors(destination: Path) -> Iterator[None]:
    """Turn OSErrors into `destination_full` or `destination_unwritable`."""
    try:
        yield
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "EIO")
        if error.errno in _FULL:
            raise SealedRefused(
                "destination_full",
                expected=f"space for the ciphertext in {destination.parent}",
                got=name,
                hint="nothing was left behind: free space and seal again",
            ) from None
        raise SealedRefused(
            "destination_unwritable", expected=f"a writable {destination.parent}", got=name
        ) from None


def _lock_partial(partial: Path) -> int:
    with suppress(FileExistsError):
        partial.mkdir(0o700)
    folder = os.open(partial, _FOLDER)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        facts, named = os.fstat(folder), os.stat(partial, follow_symlinks=False)
        if (facts.st_dev, facts.st_ino) != (named.st_dev, named.st_ino):
            raise BlockingIOError
        if facts.st_uid != os.geteuid():
            raise PermissionError(errno.EACCES, "not this user's")
    except (BlockingIOError, FileNotFoundError):
        os.close(folder)
        raise SealedRefused(
            "destination_busy", expected=f"one sealing to {partial} at a time"
        ) from None
    except BaseException:
        os.close(folder)
        raise
    return folder


def _is_empty_folder(path: Path) -> bool:
    return stat.S_ISDIR(os.lstat(path).st_mode) and not os.listdir(path)


def _exists(destination: Path) -> SealedRefused:
    return SealedRefused(
        "destination_exists",
        expected=f"no {destination}",
        hint="sealing never overwrites: remove it or choose another name",
    )
