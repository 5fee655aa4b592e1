"""fork and exec of one child under its own identity, tied to the life of this process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from enclave.core.errors import IsolationRefused
from enclave.workload.isolation.kernel import (
    PR_CAP_AMBIENT,
    PR_CAP_AMBIENT_CLEAR_ALL,
    PR_CAPBSET_DROP,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    close_descriptors_from,
    prctl,
)

_HIGH_DESCRIPTOR = 512
_MAX_CAPABILITY = 63
_FAILED = 127


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a child runs as; None of both means: as this process does."""

    uid: int | None
    gid: int | None


STARTED: Final[set[int]] = set()
"""Pids of the children that this process started and has not reaped."""


@dataclass(frozen=True, slots=True)
class Child:
    """A started process: its pid and a pidfd, which the launcher closes after the reaping."""

    pid: int
    pidfd: int


def spawn(
    argv: Sequence[str],
    *,
    identity: Identity,
    environment: Mapping[str, str],
    descriptors: Sequence[int] = (),
    standard: Sequence[int] = (),
    directory: str = "/",
) -> Child:
    """Start `argv[0]`; it dies when this process dies.

    `descriptors` become 3, 4, … of the child, `standard` its 0, 1, 2; no other
    descriptor is inherited.  Refused with `spawn_failed` when the exec fails.
    The caller must be single-threaded.
    """
    parent = os.getpid()
    failure_read, failure_write = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _become(
            lambda: _prepare(parent, identity, descriptors, standard, failure_write, directory),
            argv,
            environment,
        )
    os.close(failure_write)
    with os.fdopen(failure_read, "rb") as pipe:
        failure = pipe.read(64)
    if failure:
        os.waitpid(pid, 0)
        raise IsolationRefused("spawn_failed", expected=argv[0][:80], got=failure.decode())
    STARTED.add(pid)
    return Child(pid, os.pidfd_open(pid))


def forget(child: Child) -> None:
    """After the reaping: its number may be given to another process."""
    STARTED.discard(child.pid)


def end_orphans() -> None:
    """Kill and reap the children that this process adopted: what is left of ended compartments.

    Children that it started itself are sessions of their own making; an
    orphan's parent was bwrap, or a process of the broker.
    """
    own = os.getpid()
    try:
        with open(f"/proc/{own}/task/{own}/children", encoding="ascii") as file:
            children = [int(word) for word in file.read().split()]
    except OSError:
        return  # no such list in this kernel; PDEATHSIG did it
    for pid in children:
        if pid not in STARTED:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _become(
    prepare: Callable[[], int], argv: Sequence[str], environment: Mapping[str, str]
) -> NoReturn:
    report = -1
    try:
        report = prepare()
        os.execve(argv[0], list(argv), dict(environment))  # noqa: S606
    except BaseException as error:  # noqa: BLE001 - a forked child must never return
        if report >= 0:
            name = f"{type(error).__name__} {getattr(error, 'errno', '')}"
            os.write(report, name[:64].encode())
    finally:
        os._exit(_FAILED)


def _prepare(  # noqa: PLR0917
    parent: int,
    identity: Identity,
    descriptors: Sequence[int],
    standard: Sequence[int],
    report: int,
    directory: str,
) -> int:
    """Everything between fork and exec; returns the descriptor that reports a failed exec."""
    os.setsid()
    report = _place_descriptors(descriptors, standard, report)
    _drop_privileges(identity)
    # After the change of uid, which clears it; then the race with a parent already dead.
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_FAILED)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o077)
    os.chdir(directory)
    return report


def _place_descriptors(descriptors: Sequence[int], standard: Sequence[int], report: int) -> int:
    def lift(descriptor: int) -> int:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR)

    sources = [lift(d) for d in (*standard, *descriptors, report)]
    if not standard:
        null = lift(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        sources = [null, null, null, *sources]
    last = sources.pop()
    for number, source in enumerate(sources):
        os.dup2(source, number, inheritable=True)
    os.dup2(last, len(sources), inheritable=False)
    close_descriptors_from(len(sources) + 1)
    return len(sources)


def _drop_privileges(identity: Identity) -> None:
    if identity.uid is not None and identity.gid is not None:
        for capability in range(_MAX_CAPABILITY + 1):
            try:
                prctl(PR_CAPBSET_DROP, capability)
            except OSError:
                break  # beyond the kernel's last capability
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
        os.setgroups([])
        os.setresgid(identity.gid, identity.gid, identity.gid)
        os.setresuid(identity.uid, identity.uid, identity.uid)
        if os.getresuid() != (identity.uid,) * 3 or os.getgroups():
            os._exit(_FAILED)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
