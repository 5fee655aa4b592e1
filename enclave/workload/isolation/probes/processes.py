"""Attempts on other processes, on privileges and on namespaces."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from enclave.workload.isolation.kernel import prctl
from enclave.workload.isolation.probes.probe import CONFINED, SANDBOX_ONLY, Outcome, Probe, Targets
from enclave.workload.isolation.probes.raw import raw_call, words

_PTRACE_SEIZE: Final = 0x4206
_CLONE_NEWUSER: Final = 0x10000000
_ADDR_NO_RANDOMIZE: Final = 0x0040000
_PR_SET_SECCOMP: Final = 22
_OWN_DESCRIPTORS: Final = 2


def _in_child(act: Callable[[], object]) -> Outcome:
    """Run in a forked child: open when the child got through."""
    pid = os.fork()
    if pid == 0:
        status = 9
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) == 0:
        return "open"
    raise PermissionError


def _seize(_: Targets) -> Outcome:
    raw_call("ptrace", _PTRACE_SEIZE, os.getppid(), 0, 0)
    return "open"


def _read_memory(_: Targets) -> Outcome:
    # A forked child has its parent's layout: the same address holds the same secret there.
    secret = ctypes.create_string_buffer(b"canary")
    copy = ctypes.create_string_buffer(8)
    here = words(ctypes.addressof(copy), 6)
    there = words(ctypes.addressof(secret), 6)
    raw_call("process_vm_readv", os.getppid(), here, 1, there, 1, 0)
    return "open"


def _search_proc(targets: Targets) -> Outcome:
    wanted = targets.value.encode()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if wanted in Path("/proc", name, "environ").read_bytes():
                    return "open"
            except OSError:
                continue
    raise PermissionError


def _environment(targets: Targets) -> Outcome:
    if any(targets.value in value for value in os.environ.values()):
        return "open"
    raise PermissionError


def _arguments(targets: Targets) -> Outcome:
    if any(targets.value in value for value in sys.orig_argv):
        return "open"
    raise PermissionError


def _descriptors(_: Targets) -> Outcome:
    # Beyond 0 to 2, which are /dev/null, two are the probe's own: control socket and pipe.
    count = 0
    for number in range(3, 1024):
        try:
            os.fstat(number)
        except OSError:
            continue
        count += 1
    if count > _OWN_DESCRIPTORS:
        return "open"
    raise PermissionError


def _steal_descriptor(_: Targets) -> Outcome:
    try:
        process = os.pidfd_open(os.getppid())
    except OSError:
        process = -1
    raw_call("pidfd_getfd", process, 0, 0)
    return "open"


def _signal(targets: Targets) -> Outcome:
    os.kill(targets.pid, 0)
    # A process of the own session with the same number inside is not the canary.
    if os.getsid(targets.pid) == os.getsid(0):
        raise PermissionError
    return "open"


def _compare(_: Targets) -> Outcome:
    raw_call("kcmp", os.getppid(), os.getpid(), 1, 0, 0)
    return "open"


def _execute(_: Targets) -> Outcome:
    return _in_child(lambda: os.execv("/usr/bin/true", ["true"]))  # noqa: S606


def _clone_namespace(_: Targets) -> Outcome:
    if raw_call("clone", _CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        os._exit(0)
    return "open"


def _clone3(_: Targets) -> Outcome:
    if raw_call("clone3", words(_CLONE_NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0), 64) == 0:
        os._exit(0)
    return "open"


def _enter(_: Targets) -> Outcome:
    try:
        namespace = os.open("/proc/self/ns/uts", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        namespace = -1
    raw_call("setns", namespace, 0)
    return "open"


def _act(call: Callable[[], object]) -> Callable[[Targets], Outcome]:
    def attempt(_: Targets) -> Outcome:
        call()
        return "open"

    return attempt


def _raise_limit(kind: int) -> Callable[[Targets], Outcome]:
    def attempt(_: Targets) -> Outcome:
        soft, hard = resource.getrlimit(kind)
        more = hard if hard == resource.RLIM_INFINITY else hard + 1
        unsigned = more & 0xFFFFFFFFFFFFFFFF
        raw_call("prlimit64", 0, kind, words(soft & 0xFFFFFFFFFFFFFFFF, unsigned), 0)
        return "open"

    return attempt


PROBES: Final = (
    Probe("ptrace", "trace the parent", _seize, "killed", "ptrace"),
    Probe("read_memory", "read the parent's memory", _read_memory, "killed", "process_vm_readv"),
    Probe(
        "steal_descriptor",
        "take the parent's descriptor",
        _steal_descriptor,
        "killed",
        "pidfd_getfd",
    ),
    Probe("compare", "compare kernel objects", _compare, "killed", "kcmp"),
    Probe("search_proc", "find a secret in /proc", _search_proc),
    Probe("environment", "find a secret in the environment", _environment),
    Probe("arguments", "find a secret in the arguments", _arguments),
    Probe("descriptors", "find an inherited descriptor", _descriptors),
    Probe("signal", "signal a process outside", _signal),
    Probe("execute", "execute a program", _execute, kinds=SANDBOX_ONLY),
    Probe("set_uid", "become root", _act(lambda: os.setresuid(0, 0, 0))),
    Probe("set_groups", "join a group", _act(lambda: os.setgroups([0]))),
    Probe(
        "user_namespace",
        "new user namespace",
        _act(lambda: raw_call("unshare", _CLONE_NEWUSER)),
        "killed",
        "unshare",
    ),
    Probe("clone_namespace", "new user namespace by clone", _clone_namespace, "killed", "clone"),
    Probe("clone3", "new user namespace by clone3", _clone3),
    Probe("enter_namespace", "enter a namespace", _enter, "killed", "setns"),
    Probe(
        "personality",
        "switch address randomisation off",
        _act(lambda: raw_call("personality", _ADDR_NO_RANDOMIZE)),
    ),
    Probe("dumpable", "become dumpable", _act(lambda: prctl(4, 1))),
    Probe("own_filter", "install an own filter", _act(lambda: prctl(_PR_SET_SECCOMP, 1))),
    Probe("core_limit", "allow core files", _raise_limit(resource.RLIMIT_CORE)),
    Probe("file_limit", "raise the limit of open files", _raise_limit(resource.RLIMIT_NOFILE)),
    Probe("priority", "raise the priority", _act(lambda: os.nice(-5))),
    Probe(
        "real_time",
        "real-time scheduling",
        _act(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))),
        kinds=CONFINED,
    ),
)
