"""What a tripwire listener reports (seccomp_unotify(2)); the launcher's side."""

from __future__ import annotations

import fcntl
import struct
from dataclasses import dataclass
from typing import Final

from enclave.workload.isolation.kernel import MACHINE
from enclave.workload.isolation.seccomp.rules import ARCHITECTURES, syscall_name

_NOTIFICATION: Final = struct.Struct("=QIIiIQ6Q")
_RECEIVE: Final = 0xC0502100  # SECCOMP_IOCTL_NOTIF_RECV, struct seccomp_notif of 80 bytes
_ID_VALID: Final = 0x40082102  # SECCOMP_IOCTL_NOTIF_ID_VALID


@dataclass(frozen=True, slots=True)
class Tripped:
    """One forbidden system call: who made it, and its name."""

    identity: int
    pid: int
    name: str


def receive_tripped(listener: int) -> Tripped | None:
    """The next report; None when the caller died meanwhile."""
    buffer = bytearray(_NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, buffer)
    except OSError:
        return None
    identity, pid, _, number, architecture, *_ = _NOTIFICATION.unpack(buffer)
    if architecture != ARCHITECTURES[MACHINE]:
        name = "foreign_architecture"
    elif MACHINE == "x86_64" and number & 0x40000000:
        name = "x32_abi"
    else:
        name = syscall_name(number, MACHINE)
    return Tripped(identity, pid, name)


def still_stopped(listener: int, tripped: Tripped) -> bool:
    """Whether the reported thread still waits: its pid was not given to another process."""
    try:
        fcntl.ioctl(listener, _ID_VALID, struct.pack("=Q", tripped.identity))
    except OSError:
        return False
    return True
