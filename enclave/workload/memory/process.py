"""A process whose memory nobody of its own user may look into or find in a core file."""

from __future__ import annotations

import ctypes
import resource

from enclave.core.errors import IsolationRefused

_PR_GET_DUMPABLE = 3
_PR_SET_DUMPABLE = 4
_libc = ctypes.CDLL(None, use_errno=True)


def disable_core_dumps() -> None:
    """RLIMIT_CORE 0, for this process and its children. Refusal `core_dumps_enabled`."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if resource.getrlimit(resource.RLIMIT_CORE) != (0, 0):
        raise IsolationRefused("core_dumps_enabled", expected="RLIMIT_CORE 0")


def make_undumpable() -> None:
    """PR_SET_DUMPABLE 0: no ptrace, no /proc/PID/mem by the same user; lost at execve.

    /proc/self/fd then belongs to root: reopening descriptors still works for this process.
    Refusal `process_dumpable`.
    """
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if _libc.prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise IsolationRefused("process_dumpable", expected="PR_GET_DUMPABLE 0")
