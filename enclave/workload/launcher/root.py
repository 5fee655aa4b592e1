"""A private world for the workload, where the launcher is root.

Own mount, pid and ipc namespaces and an own, nearly empty root: the runtime
read-only, the state directory, private tmpfs mounts.  Nothing of it is visible
to other processes of the host, and nothing is left when the launcher dies.
"""

# Descriptors, mounts and exact paths: the os functions say what happens.
# ruff: noqa: PTH102, PTH106, PTH120, PTH211
from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from enclave.core.errors import IsolationRefused
from enclave.workload.isolation.kernel import (
    MNT_DETACH,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    enter_root,
    mount,
    restrict_mount,
    unmount,
)
from enclave.workload.isolation.runtime import Runtime, write_etc

PRIVATE_DIRECTORY: Final = "/run/doubleblind"
ETC_DIRECTORY: Final = f"{PRIVATE_DIRECTORY}/etc"
MEMORY_DIRECTORY: Final = f"{PRIVATE_DIRECTORY}/memory"
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_ROOT_OPTIONS: Final = "size=32m,mode=0755"
_TMP_OPTIONS: Final = "size=256m,mode=1777"


@dataclass(frozen=True, slots=True)
class Binding:
    """A host path that appears at the same place in the private world."""

    path: str
    read_only: bool


def build_private_root(mount_point: str, runtime: Runtime, bindings: Sequence[Binding]) -> None:
    """Build the root on `mount_point` (an existing directory, never written) and enter it.

    The mount namespace must be private already.  Refused with `private_root`
    when a path is missing or the kernel refuses a mount.
    """
    try:
        mount(None, "/", None, MS_REC | MS_PRIVATE)
        sources = [
            (item, _open_source(item))
            for item in sorted(
                (*(Binding(tree, read_only=True) for tree in runtime.trees), *bindings),
                key=lambda item: item.path.count("/"),
            )
        ]
        devices = [(n, os.open(f"/dev/{n}", os.O_PATH | os.O_CLOEXEC)) for n in _DEVICES]
        mount("tmpfs", mount_point, "tmpfs", MS_NOSUID | MS_NODEV, _ROOT_OPTIONS)
        _populate(mount_point, runtime, devices)
        for item, descriptor in sources:
            _bind(mount_point, item, descriptor)
        for _, descriptor in (*sources, *devices):
            os.close(descriptor)
        enter_root(mount_point)
    except OSError as error:
        raise IsolationRefused(
            "private_root", expected="a private root", got=str(error.strerror or error)[:120]
        ) from None
    write_etc(ETC_DIRECTORY)
    write_etc("/etc")
    os.makedirs(MEMORY_DIRECTORY, mode=0o755)


def _open_source(item: Binding) -> int:
    # What the broker may write to lies on the host's disk: a link there is not followed.
    strict = 0 if item.read_only else os.O_DIRECTORY | os.O_NOFOLLOW
    return os.open(item.path, os.O_PATH | os.O_CLOEXEC | strict)


def _populate(root: str, runtime: Runtime, devices: Sequence[tuple[str, int]]) -> None:
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    for name in ("proc", "dev", "tmp", "etc"):
        os.mkdir(f"{root}/{name}", 0o755)
    _mount_scratch(f"{root}/tmp", flags)  # noqa: S108
    # hidepid: a compartment's uid does not even see that the others exist
    mount("proc", f"{root}/proc", "proc", flags, "hidepid=invisible")
    for name, descriptor in devices:
        target = f"{root}/dev/{name}"
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        mount(f"/proc/self/fd/{descriptor}", target, None, MS_BIND)
    for path, target in runtime.links:
        os.symlink(target, root + path)


def _mount_scratch(target: str, flags: int) -> None:
    """The broker's /tmp: no secret belongs there, so a kernel without noswap will do."""
    try:
        mount("tmpfs", target, "tmpfs", flags, f"{_TMP_OPTIONS},noswap")
    except OSError:
        mount("tmpfs", target, "tmpfs", flags, _TMP_OPTIONS)


def _bind(root: str, item: Binding, descriptor: int) -> None:
    target = root + item.path
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.makedirs(target, mode=0o755, exist_ok=True)
    elif not os.path.lexists(target):
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    mount(f"/proc/self/fd/{descriptor}", target, None, MS_BIND | MS_REC)
    restrict_mount(target, read_only=item.read_only)


def mount_memory(session: str, size: int, uid: int, gid: int) -> str:
    """A private tmpfs for a session's opened artifacts, never swapped; returns its path."""
    path = memory_path(session)
    options = f"size={size},mode=0700,uid={uid},gid={gid},noswap"
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        raise IsolationRefused("memory_exists", expected="one memory a session") from None
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    failures = []
    # Huge pages are speed, noswap is secrecy: only the first may be missing.
    for wanted in (f"{options},huge=always", options):
        try:
            mount("tmpfs", path, "tmpfs", flags, wanted)
        except OSError as error:
            failures.append(str(error.strerror))
        else:
            return path
    os.rmdir(path)
    raise IsolationRefused(
        "tmpfs_noswap",
        expected="tmpfs with noswap",
        got=failures[-1][:80],
        hint="boot Linux 6.4 or later and run the launcher as root",
    )


def unmount_memory(session: str) -> None:
    """Give the memory back; refused with `memory_busy` when files of it were still in use."""
    path = memory_path(session)
    if not os.path.ismount(path):
        raise IsolationRefused("memory_unknown", expected="a mounted session memory")
    try:
        unmount(path)
    except OSError:
        unmount(path, MNT_DETACH)
        raise IsolationRefused("memory_busy", expected="no open file in the memory") from None
    finally:
        os.rmdir(path)


def memory_path(session: str) -> str:
    """Where a session's memory is mounted."""
    return f"{MEMORY_DIRECTORY}/{session}"
