"""Attempts on files, shared memory, and what a result could smuggle."""

# Descriptors, mounts and exact paths: the os functions say what happens.
# ruff: noqa: PTH101, PTH110, PTH120, PTH211
from __future__ import annotations

import ctypes
import os
import stat
from typing import Final

from enclave.workload.isolation.probes.probe import CONFINED, SANDBOX_ONLY, Outcome, Probe, Targets
from enclave.workload.isolation.probes.raw import raw_call

_libc = ctypes.CDLL(None, use_errno=True)


def _read(path: str) -> Outcome:
    with open(path, "rb") as file:
        file.read(1)
    return "open"


def _create(path: str) -> Outcome:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    os.unlink(path)
    return "open"


def _made(targets: Targets) -> str:
    path = os.path.join(targets.scratch, "probe")
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    return path


def _write_runtime(targets: Targets) -> Outcome:
    return _create(os.path.join(targets.runtime, "doubleblind-probe.pth"))


def _write_root(_: Targets) -> Outcome:
    return _create("/doubleblind-probe")


def _write_bundle(_: Targets) -> Outcome:
    return _create("/bundle/doubleblind-probe")


def _shared_create(_: Targets) -> Outcome:
    return _create("/dev/shm/doubleblind-probe")  # noqa: S108


def _sysv(_: Targets) -> Outcome:
    identity = raw_call("shmget", 0, 4096, 0o1600)
    raw_call("shmctl", identity, 0, 0)
    return "open"


def _message_queue(_: Targets) -> Outcome:
    name = b"doubleblind-probe"
    os.close(raw_call("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, 0))
    raw_call("mq_unlink", name)
    return "open"


def _handle(_: Targets) -> Outcome:
    buffer = ctypes.create_string_buffer((128).to_bytes(4, "little") + bytes(132))
    mount = ctypes.c_int()
    raw_call("name_to_handle_at", -100, b"/usr", buffer, ctypes.byref(mount), 0)
    return "open"


def _open_handle(_: Targets) -> Outcome:
    root = os.open("/", os.O_RDONLY | os.O_CLOEXEC)
    buffer = ctypes.create_string_buffer((128).to_bytes(4, "little") + bytes(132))
    mount = ctypes.c_int()
    raw_call("name_to_handle_at", root, b"", buffer, ctypes.byref(mount), 0x1000)
    os.close(raw_call("open_by_handle_at", root, buffer, os.O_RDONLY))
    return "open"


def _symlink(targets: Targets) -> Outcome:
    os.symlink("/etc/passwd", os.path.join(targets.scratch, "link"))
    return "open"


def _hard_link(targets: Targets) -> Outcome:
    # Outside, the canary's own directory; inside, the runtime: neither may be linked.
    source = targets.file if os.path.exists(targets.file) else "/etc/passwd"
    os.link(source, os.path.join(os.path.dirname(source), "doubleblind-link"))
    return "open"


def _fifo(targets: Targets) -> Outcome:
    os.mkfifo(os.path.join(targets.scratch, "fifo"))
    return "open"


def _device(targets: Targets) -> Outcome:
    path = os.path.join(targets.scratch, "device")
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 1))
    return "open"


def _set_uid_bit(targets: Targets) -> Outcome:
    os.chmod(_made(targets), 0o4755)  # noqa: S103 - the attempt
    return "open"


def _give_away(targets: Targets) -> Outcome:
    os.chown(_made(targets), 1, 1)
    return "open"


def _attribute(targets: Targets) -> Outcome:
    os.setxattr(_made(targets), "user.probe", b"x")
    return "open"


def _memory_file(_: Targets) -> Outcome:
    os.close(os.memfd_create("probe"))
    return "open"


def _list_directory(path: str) -> Outcome:
    os.listdir(path)
    return "open"


def _watch(targets: Targets) -> Outcome:
    descriptor = raw_call("inotify_init1", 0)
    raw_call("inotify_add_watch", descriptor, os.fsencode(targets.runtime), 0xFFF)
    return "open"


PROBES: Final = (
    Probe("read_canary", "read a file outside", lambda t: _read(t.file)),
    Probe("read_shared", "read shared memory outside", lambda t: _read(t.shm)),
    Probe("create_shared", "create shared memory", _shared_create),
    Probe("write_runtime", "add a .pth file to the runtime", _write_runtime),
    Probe("write_root", "create a file in the root", _write_root),
    Probe("write_bundle", "change the bundle", _write_bundle, kinds=SANDBOX_ONLY),
    Probe("list_root", "list the root", lambda _: _list_directory("/")),
    Probe("list_proc", "list the processes", lambda _: _list_directory("/proc"), kinds=CONFINED),
    Probe(
        "kernel_symbols", "read kernel symbols", lambda _: _read("/proc/kallsyms"), kinds=CONFINED
    ),
    Probe("devices", "list the devices", lambda _: _list_directory("/dev")),
    Probe("sysv_memory", "System V shared memory", _sysv),
    Probe("message_queue", "POSIX message queue", _message_queue),
    Probe("file_handle", "make a file handle", _handle),
    Probe("open_handle", "open a file by handle", _open_handle),
    Probe("symlink", "symbolic link as a result", _symlink),
    Probe("hard_link", "hard link to a file outside", _hard_link),
    Probe("fifo", "FIFO as a result", _fifo),
    Probe("device", "device node as a result", _device),
    Probe("set_uid_bit", "set-uid bit on a file", _set_uid_bit),
    Probe("give_away", "give a file away", _give_away),
    Probe("attribute", "hide data in an extended attribute", _attribute),
    Probe("memory_file", "anonymous file for execution", _memory_file),
    Probe("watch", "watch files of others", _watch),
)
