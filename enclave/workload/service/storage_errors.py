"""Disk errors as typed refusals."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from enclave.core.errors import UploadRefused

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def disk_full(expected: str, got: str) -> UploadRefused:
    """The refusal `upload_disk_full`."""
    return UploadRefused(
        "upload_disk_full",
        expected=expected,
        got=got,
        hint="free space in the enclave's store, then upload again: what was acknowledged stays",
    )


@contextlib.contextmanager
def typed_storage_errors() -> Iterator[None]:
    """Turn OSErrors of the store into `upload_disk_full` or `upload_storage_failed`."""
    try:
        yield
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "EIO")
        if error.errno in _FULL:
            raise disk_full("free space in the enclave's store", name) from None
        raise UploadRefused("upload_storage_failed", expected="a working store", got=name) from None


def write_fully(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of `data` at `offset`; a full disk shows as a short write first."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written
