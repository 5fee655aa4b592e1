"""Landlock: which files, TCP ports and processes a compartment may reach (landlock(7)).

A ruleset handles every right that the kernel's ABI knows, so what no rule
grants is refused.  Nothing here can be undone by the process afterwards.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from enclave.core.errors import IsolationRefused
from enclave.workload.isolation.kernel import syscall

ACCESS: Final = {
    "execute": 1 << 0,
    "write_file": 1 << 1,
    "read_file": 1 << 2,
    "read_dir": 1 << 3,
    "remove_dir": 1 << 4,
    "remove_file": 1 << 5,
    "make_char": 1 << 6,
    "make_dir": 1 << 7,
    "make_reg": 1 << 8,
    "make_sock": 1 << 9,
    "make_fifo": 1 << 10,
    "make_block": 1 << 11,
    "make_sym": 1 << 12,
    "refer": 1 << 13,
    "truncate": 1 << 14,
    "ioctl_dev": 1 << 15,
}
_FILE_RIGHTS: Final = (1 << 0) | (1 << 1) | (1 << 2) | (1 << 14) | (1 << 15)
_BIND_TCP: Final = 1
_CONNECT_TCP: Final = 2
_SCOPE_ALL: Final = 3  # abstract UNIX sockets and signals
_CREATE_VERSION: Final = 1
_RULE_PATH: Final = 1
_RULE_PORT: Final = 2


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


class _PortRule(ctypes.Structure):
    _fields_ = (("allowed_access", ctypes.c_uint64), ("port", ctypes.c_uint64))


@dataclass(frozen=True, slots=True)
class PathRule:
    """Rights (names of ACCESS) on everything beneath `path`."""

    path: str
    rights: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LandlockRules:
    """What a compartment may reach: paths, and TCP ports it may connect to."""

    paths: tuple[PathRule, ...]
    connect_ports: tuple[int, ...]
    minimum_abi: int

    def as_json(self) -> dict[str, object]:
        """For orders and the profile digest."""
        return {
            "paths": [[rule.path, list(rule.rights)] for rule in self.paths],
            "connect_ports": list(self.connect_ports),
            "minimum_abi": self.minimum_abi,
        }


def landlock_abi() -> int:
    """The kernel's Landlock ABI version; refused when there is none (`landlock_missing`)."""
    try:
        return syscall("landlock_create_ruleset", None, 0, _CREATE_VERSION)
    except OSError as error:
        reason = "disabled at boot" if error.errno == errno.EOPNOTSUPP else "not in this kernel"
        raise IsolationRefused(
            "landlock_missing",
            expected="Landlock",
            got=reason,
            hint="boot a kernel with CONFIG_SECURITY_LANDLOCK and lsm=landlock,…",
        ) from None


def demand_landlock(minimum_abi: int) -> int:
    """The kernel's ABI; refused when below what the tier demands (`landlock_abi`)."""
    abi = landlock_abi()
    if abi < minimum_abi:
        raise IsolationRefused(
            "landlock_abi",
            expected=f"Landlock ABI {minimum_abi}",
            got=f"ABI {abi}",
            hint="boot Linux 6.12 or later",
        )
    return abi


def restrict_self(rules: LandlockRules, granted: Sequence[int] = ()) -> int:
    """Confine the calling thread and its future children; returns the ABI in force.

    `granted` are directory descriptors whose files may be read through already
    opened descriptors (`/proc/self/fd/N`), although no path leads there.
    no_new_privs must be set.  Call while single-threaded.
    """
    abi = demand_landlock(rules.minimum_abi)
    handled_fs = sum(ACCESS.values())
    for name, since in (("refer", 2), ("truncate", 3), ("ioctl_dev", 5)):
        if abi < since:
            handled_fs &= ~ACCESS[name]
    attributes = _Attributes(
        handled_access_fs=handled_fs,
        handled_access_net=_BIND_TCP | _CONNECT_TCP if abi >= 4 else 0,
        scoped=_SCOPE_ALL if abi >= 6 else 0,
    )
    size = 24 if abi >= 6 else (16 if abi >= 4 else 8)
    ruleset = syscall("landlock_create_ruleset", ctypes.byref(attributes), size, 0)
    try:
        for rule in rules.paths:
            _grant_path(ruleset, rule, handled_fs)
        for descriptor in granted:
            _grant_descriptor(ruleset, descriptor, ACCESS["read_file"])
        for port in rules.connect_ports:
            grant = _PortRule(allowed_access=_CONNECT_TCP, port=port)
            syscall("landlock_add_rule", ruleset, _RULE_PORT, ctypes.byref(grant), 0)
        syscall("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)
    return abi


def _grant_path(ruleset: int, rule: PathRule, handled: int) -> None:
    descriptor = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights = 0
        for name in rule.rights:
            rights |= ACCESS[name]
        if not _is_directory(descriptor):
            rights &= _FILE_RIGHTS
        _grant_descriptor(ruleset, descriptor, rights & handled)
    finally:
        os.close(descriptor)


def _grant_descriptor(ruleset: int, descriptor: int, rights: int) -> None:
    grant = _PathRule(allowed_access=rights, parent_fd=descriptor)
    syscall("landlock_add_rule", ruleset, _RULE_PATH, ctypes.byref(grant), 0)


def _is_directory(descriptor: int) -> bool:
    return os.fstat(descriptor).st_mode & 0o170000 == 0o040000
