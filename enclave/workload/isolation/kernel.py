"""Linux system calls that Python 3.11 does not offer, and their errors as refusals.

Only what the launcher and stage two need.  Numbers are those of the two
supported machines; every other machine is refused when this module loads.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from typing import Any, Final

from enclave.core.errors import IsolationRefused

MACHINE: Final = platform.machine()

_NUMBERS: Final[dict[str, dict[str, int]]] = {
    "x86_64": {"pivot_root": 155, "seccomp": 317},
    "aarch64": {"pivot_root": 41, "seccomp": 277},
}
_COMMON: Final = {
    "close_range": 436,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWPID: Final = 0x20000000

MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18
MNT_DETACH: Final = 2

_AT_RECURSIVE: Final = 0x8000
_MOUNT_ATTR_RDONLY: Final = 1
_MOUNT_ATTR_NOSUID: Final = 2
_MOUNT_ATTR_NODEV: Final = 4

PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_CAPBSET_DROP: Final = 24
PR_SET_CHILD_SUBREAPER: Final = 36
PR_SET_NO_NEW_PRIVS: Final = 38
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_CLEAR_ALL: Final = 4

_libc: Final = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def syscall(name: str, *arguments: Any) -> int:
    """Make a system call by name; OSError with its errno when it fails.

    Integers are passed as C longs; ctypes objects (pointers, bytes) as they are.
    """
    number = _COMMON.get(name)
    if number is None:
        numbers = _NUMBERS.get(MACHINE)
        if numbers is None:
            raise IsolationRefused(
                "machine_unsupported", expected="x86_64 or aarch64", got=MACHINE[:40]
            )
        number = numbers[name]
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result: int = _libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        raise _last_error(name)
    return result


def _last_error(name: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{name}: {os.strerror(number)}")


def prctl(option: int, argument: int, third: int = 0) -> int:
    """Change an attribute of this process, by number; OSError when it fails."""
    result: int = _libc.prctl(
        ctypes.c_int(option),
        ctypes.c_ulong(argument),
        ctypes.c_ulong(third),
        ctypes.c_ulong(0),
        ctypes.c_ulong(0),
    )
    if result < 0:
        raise _last_error("prctl")
    return result


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Mount something; OSError when the kernel refuses."""
    result = _libc.mount(
        os.fsencode(source) if source is not None else None,
        os.fsencode(target),
        kind.encode() if kind is not None else None,
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )
    if result < 0:
        raise _last_error("mount")


def unmount(target: str, flags: int = 0) -> None:
    """Unmount something; OSError when the kernel refuses."""
    if _libc.umount2(os.fsencode(target), ctypes.c_int(flags)) < 0:
        raise _last_error("umount2")


def unshare(flags: int) -> None:
    """Enter new namespaces, while single-threaded; OSError when it fails."""
    if _libc.unshare(ctypes.c_int(flags)) < 0:
        raise _last_error("unshare")


def restrict_mount(target: str, *, read_only: bool) -> None:
    """Make a mount and everything beneath it nosuid and nodev, and read-only where asked."""
    attributes = _MountAttributes(attr_set=_MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV)
    if read_only:
        attributes.attr_set |= _MOUNT_ATTR_RDONLY
    syscall(
        "mount_setattr",
        -100,  # AT_FDCWD; the target is absolute
        os.fsencode(target),
        _AT_RECURSIVE,
        ctypes.byref(attributes),
        ctypes.sizeof(attributes),
    )


def enter_root(directory: str) -> None:
    """Make `directory` (a mount) the root and detach the old one."""
    os.chdir(directory)
    syscall("pivot_root", b".", b".")
    unmount(".", MNT_DETACH)
    os.chdir("/")


def close_descriptors_from(first: int) -> None:
    """Close every descriptor numbered `first` or higher."""
    syscall("close_range", first, 0xFFFFFFFF, 0)


def harden_process() -> None:
    """No core, no ptrace by the own uid, no new privileges. Call first in every compartment."""
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def offer_to_the_kernel() -> None:
    """Be the first to end when memory runs out, with every process that is forked from here.

    Memory is bounded for each process, not for all of them together: without this
    the kernel might end the model host or another plan's run instead.  No layer of
    the isolation depends on it, so a kernel that refuses is no reason to stop.
    """
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
