"""Load a compiled filter into the calling thread; its tripwires report to a listener."""

from __future__ import annotations

import ctypes
import errno
from typing import Final

from enclave.core.errors import IsolationRefused
from enclave.workload.isolation.kernel import syscall

_SET_MODE_FILTER: Final = 1
_FLAG_NEW_LISTENER: Final = 1 << 3


class _FilterProgram(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def load_filter(code: bytes) -> int:
    """Install the filter for this thread and all it starts; returns the listener descriptor.

    The holder of the listener learns of each tripwire; the tripped thread
    stays stopped in the kernel until it is killed.  Call single-threaded,
    with no_new_privs set, as the last step of confinement.
    """
    program = _FilterProgram(len=len(code) // 8, filter=code)
    try:
        return syscall("seccomp", _SET_MODE_FILTER, _FLAG_NEW_LISTENER, ctypes.byref(program))
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "unknown")
        raise IsolationRefused(
            "seccomp_unavailable",
            expected="seccomp filters with user notification",
            got=name,
            hint="boot a kernel with CONFIG_SECCOMP_FILTER (Linux 5.0 or later)",
        ) from None
