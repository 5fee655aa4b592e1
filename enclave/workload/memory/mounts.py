"""Whether a directory is a tmpfs that is never swapped and nobody else's."""

from __future__ import annotations

import ctypes
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from enclave.core.errors import IsolationRefused

_TMPFS_MAGIC = 0x01021994
_STATFS_BYTES = 256
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class _Mount:
    device: str
    kind: str
    options: frozenset[str]


def open_noswap_tmpfs(directory: Path) -> int:
    """A descriptor of `directory`; the caller closes it.

    Raises IsolationRefused `memory_not_tmpfs`, `memory_swappable`, `memory_shared`.
    """
    try:
        folder = os.open(directory, _FOLDER)
    except OSError as error:
        raise _refuse("memory_not_tmpfs", f"a tmpfs at {directory}", str(error.strerror)) from None
    try:
        _refuse_unsuitable(folder, directory)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _refuse_unsuitable(folder: int, directory: Path) -> None:
    facts = os.fstat(folder)
    kind = _filesystem_type(folder)
    if kind != _TMPFS_MAGIC:
        raise _refuse("memory_not_tmpfs", f"a tmpfs at {directory}", f"type {kind:#x}")
    device = f"{os.major(facts.st_dev)}:{os.minor(facts.st_dev)}"
    mounts = [mount for mount in _read_mounts() if mount.device == device]
    if not mounts or any(mount.kind != "tmpfs" for mount in mounts):
        raise _refuse("memory_not_tmpfs", f"a tmpfs at {directory}", "none in mountinfo")
    # noswap is an option of the file system: every mount of it shows it, or none.
    if not all("noswap" in mount.options for mount in mounts):
        raise _refuse("memory_swappable", f"noswap on the tmpfs at {directory}", "swap allowed")
    if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise _refuse(
            "memory_shared",
            f"{directory} owned by this user, mode 0700",
            f"uid {facts.st_uid}, mode {stat.S_IMODE(facts.st_mode):04o}",
        )


def _filesystem_type(descriptor: int) -> int:
    """f_type of fstatfs(2), its first field; Python's statvfs leaves it out."""
    buffer = (ctypes.c_long * (_STATFS_BYTES // ctypes.sizeof(ctypes.c_long)))()
    if _libc.fstatfs(descriptor, ctypes.byref(buffer)) != 0:
        raise OSError(ctypes.get_errno(), "fstatfs")
    return int(buffer[0])


def _read_mounts() -> list[_Mount]:
    """proc(5): ID parent major:minor root point options [tags] - type source super-options."""
    mounts = []
    for line in Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, rest = after.partition(" ")
        options = rest.rpartition(" ")[2].split(",")
        mounts.append(_Mount(before.split(" ")[2], kind, frozenset(options)))
    return mounts


def _refuse(code: str, expected: str, got: str) -> IsolationRefused:
    return IsolationRefused(
        code,
        expected=expected,
        got=got,
        hint="mount -t tmpfs -o huge=always,noswap,mode=0700 needs root and Linux 6.4",
    )
