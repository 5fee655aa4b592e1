"""System calls by name, as hostile code would make them: past every library."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from enclave.workload.isolation.kernel import MACHINE
from enclave.workload.isolation.seccomp.rules import syscall_table

_libc = ctypes.CDLL(None, use_errno=True)


def raw_call(name: str | int, *arguments: Any) -> int:
    """Make a system call by name or number; OSError when the kernel or a filter refuses."""
    if isinstance(name, str):
        number = syscall_table()[name][0 if MACHINE == "x86_64" else 1]
        if number is None:
            raise OSError(38, f"{name} does not exist here")
    else:
        number = name
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    words += [ctypes.c_long(0)] * (6 - len(words))
    result: int = _libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def words(*values: int, size: int = 8) -> ctypes.Array[ctypes.c_char]:
    """A structure of equal integers, for calls that take a pointer to one."""
    return ctypes.create_string_buffer(b"".join(v.to_bytes(size, "little") for v in values))
