"""Attempts on rarely used kernel interfaces, other ABIs and executable memory."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import socket
from collections.abc import Callable
from typing import Any, Final

from enclave.workload.isolation.kernel import MACHINE
from enclave.workload.isolation.probes.probe import CONFINED, SANDBOX_ONLY, Outcome, Probe, Targets
from enclave.workload.isolation.probes.raw import raw_call, words

_TIOCSTI: Final = 0x5412
_PROT_ALL: Final = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
_MADV_MERGEABLE: Final = 12
_OLD_GETPID: Final = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"  # mov eax, 20; int 0x80; ret
_X32_GETPID: Final = 0x40000000 | 39


def _call(name: str, *arguments: Any) -> Callable[[Targets], Outcome]:
    def attempt(_: Targets) -> Outcome:
        raw_call(name, *arguments)
        return "open"

    return attempt


def _tripwire(identity: str, name: str, call: str, *arguments: Any) -> Probe:
    return Probe(identity, name, _call(call, *arguments), "killed", call)


def _mount(targets: Targets) -> Outcome:
    path = os.fsencode(targets.scratch)
    raw_call("mount", b"none", path, b"tmpfs", 0, 0)
    raw_call("umount2", path, 0)
    return "open"


def _host_name(_: Targets) -> Outcome:
    name = socket.gethostname().encode()
    raw_call("sethostname", name, len(name))
    return "open"


def _chroot(_: Targets) -> Outcome:
    os.chroot("/")
    return "open"


def _perf(_: Targets) -> Outcome:
    attributes = ctypes.create_string_buffer(
        (1).to_bytes(4, "little") + (112).to_bytes(4, "little") + bytes(104)
    )
    os.close(raw_call("perf_event_open", attributes, 0, -1, -1, 0))
    return "open"


def _bpf_map(_: Targets) -> Outcome:
    os.close(raw_call("bpf", 0, words(2, 4, 4, 1, 0, 0, 0, 0, size=4), 32))
    return "open"


def _ring(_: Targets) -> Outcome:
    os.close(raw_call("io_uring_setup", 4, ctypes.create_string_buffer(120)))
    return "open"


def _x32(_: Targets) -> Outcome:
    raw_call(_X32_GETPID)
    return "open"


def _old_abi(targets: Targets) -> Outcome:
    path = os.path.join(targets.scratch, "code")
    with open(path, "w+b") as file:
        file.write(_OLD_GETPID.ljust(4096, b"\x90"))
        file.flush()
        code = _map(4096, mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, file.fileno())
    if ctypes.CFUNCTYPE(ctypes.c_int)(code)() <= 0:
        raise PermissionError
    return "open"


def _map(size: int, protection: int, flags: int, descriptor: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    address = libc.mmap(
        None, ctypes.c_size_t(size), protection, flags, descriptor, ctypes.c_long(0)
    )
    if address is None or address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap")
    return int(address)


def _writable_code(_: Targets) -> Outcome:
    _map(4096, _PROT_ALL, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    return "open"


def _late_code(_: Targets) -> Outcome:
    plain = mmap.PROT_READ | mmap.PROT_WRITE
    address = _map(4096, plain, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    raw_call("mprotect", address, 4096, _PROT_ALL)
    return "open"


def _merge(_: Targets) -> Outcome:
    plain = mmap.PROT_READ | mmap.PROT_WRITE
    address = _map(4096, plain, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    raw_call("madvise", address, 4096, _MADV_MERGEABLE)
    return "open"


def _inject(_: Targets) -> Outcome:
    fcntl.ioctl(0, _TIOCSTI, b"x")
    return "open"


PROBES: Final = (
    Probe("io_uring", "io_uring", _ring, "killed", "io_uring_setup"),
    Probe("bpf", "BPF map", _bpf_map, "killed", "bpf"),
    Probe("perf", "performance counters", _perf, "killed", "perf_event_open"),
    _tripwire("userfaultfd", "user fault handling", "userfaultfd", 1),
    _tripwire("fanotify", "watch the file system", "fanotify_init", 0, 0),
    Probe("mount", "mount a file system", _mount, "killed", "mount"),
    _tripwire("new_mount", "mount by the new interface", "fsopen", b"tmpfs", 0),
    Probe("chroot", "change the root", _chroot, "killed", "chroot"),
    _tripwire("keyring", "kernel keyring", "add_key", b"user", b"probe", b"x", 1, -2),
    _tripwire("find_key", "ask for a key", "keyctl", 0, -3, 0),
    _tripwire("kernel_log", "kernel log", "syslog", 10, 0, 0),
    _tripwire("set_clock", "set the clock", "clock_settime", 99, words(0, 0)),
    Probe("host_name", "set the host name", _host_name, "killed", "sethostname"),
    _tripwire("module", "load a kernel module", "finit_module", -1, b"", 0),
    _tripwire("quota", "quota interface", "quotactl", 0x80000100, 0, 0, 0),
    _tripwire("advise_other", "advise another's memory", "process_madvise", -1, 0, 0, 0, 0),
    Probe("writable_code", "page writable and executable", _writable_code, kinds=CONFINED),
    Probe("late_code", "page made executable while writable", _late_code, kinds=CONFINED),
    Probe("merge_pages", "page merging (a side channel)", _merge),
    Probe("terminal_input", "type into the terminal", _inject),
    *(
        (
            Probe("x32", "x32 system call", _x32, "killed", "x32_abi"),
            Probe(
                "i386",
                "32-bit system call",
                _old_abi,
                "killed",
                "foreign_architecture",
                SANDBOX_ONLY,
            ),
        )
        if MACHINE == "x86_64"
        else ()
    ),
)
