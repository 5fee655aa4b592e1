"""`launch_workload`: the body of the launcher process."""

# Descriptors, mounts and exact paths: the os functions say what happens.
# ruff: noqa: PTH100
from __future__ import annotations

import json
import os
import select
import signal
import socket
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence

from enclave.core.errors import IsolationRefused, Refusal, rebuild_refusal
from enclave.workload.isolation.kernel import (
    CLONE_NEWIPC,
    CLONE_NEWNS,
    CLONE_NEWPID,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    harden_process,
    prctl,
    unshare,
)
from enclave.workload.isolation.landlock import demand_landlock
from enclave.workload.isolation.profile import T1_LANDLOCK_ABI
from enclave.workload.isolation.runtime import Runtime, discover_runtime, find_bubblewrap, write_etc
from enclave.workload.launcher.identities import Identities
from enclave.workload.launcher.preflight import demand_bubblewrap
from enclave.workload.launcher.protocol import LAUNCHER_DESCRIPTOR, LAUNCHER_VARIABLE
from enclave.workload.launcher.root import ETC_DIRECTORY, Binding, build_private_root
from enclave.workload.launcher.server import Server
from enclave.workload.launcher.spawn import spawn
from enclave.workload.launcher.starter import Starter

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FAILED = 70


def launch_workload(
    broker_argv: Sequence[str],
    *,
    run_directory: str,
    state_directory: str,
    uids: Mapping[str, int] | None = None,
    readable: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    insecure_show_stderr: bool = False,
) -> int:
    """Start the broker and serve it until it ends; returns its exit status.

    The caller gives its whole process to this: single-threaded, ending with
    this status.  `broker_argv[0]` is an absolute path in the runtime.
    `run_directory` exists; as root it is only the mount point of the private
    root and stays empty, otherwise it holds the small /etc.  As root the
    broker sees the runtime, `readable` (read-only) and `state_directory`
    (its own, 0700), each at its usual path, and nothing else of the host.
    The broker finds its LauncherClient by `LauncherClient.from_environment()`.

    `insecure_show_stderr` leaves the compartments' stderr open for a
    developer: an unmetered way out, marked in the profile.

    Raises IsolationRefused: `bwrap_missing`, `userns_unavailable`,
    `landlock_missing`, `landlock_abi`, `private_root`, `spawn_failed`, `state_not_directory`,
    `uids`.
    """
    if insecure_show_stderr:
        warnings.warn("insecure_show_stderr: compartments can leak through stderr", stacklevel=2)
    os.umask(0o022)
    identities = Identities(uids)
    runtime = discover_runtime()
    bwrap = find_bubblewrap()
    demand_landlock(T1_LANDLOCK_ABI)
    run = os.path.abspath(run_directory)
    state = os.path.abspath(state_directory)
    _own_directory(state, identities)
    stderr = 2 if insecure_show_stderr else None

    def serve(etc: str) -> int:
        starter = Starter(runtime, identities, bwrap=bwrap, etc=etc, insecure_stderr=stderr)
        demand_bubblewrap(bwrap, runtime, identities.of("sandbox"))
        return _serve(broker_argv, starter, state, environment or {})

    if not identities.separate:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        harden_process()
        etc = os.path.join(run, "etc")
        write_etc(etc)
        return serve(etc)
    bindings = [
        *(Binding(os.path.abspath(path), read_only=True) for path in readable),
        Binding(state, read_only=False),
    ]
    return _in_private_world(run, runtime, bindings, lambda: serve(ETC_DIRECTORY))


def _own_directory(state: str, identities: Identities) -> None:
    """The broker's directory: made if missing, its own, closed to others.

    What lies on the disk is the host's: a link there would have root give away, and show to
    the broker, whatever it points to.  Refused with `state_not_directory`.
    """
    try:
        os.makedirs(state, mode=0o700, exist_ok=True)
        folder = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise IsolationRefused(
            "state_not_directory",
            expected="a directory for the workload's state, not a link",
            got=str(error.strerror)[:80],
            hint="look at what lies in its place",
        ) from None
    try:
        os.fchmod(folder, 0o700)
        identity = identities.of("broker")
        if identity.uid is not None and identity.gid is not None:
            # Only the directory itself: following what an earlier broker left there could
            # give it files that are not its own.
            os.fchown(folder, identity.uid, identity.gid)
    finally:
        os.close(folder)


def _in_private_world(
    run: str, runtime: Runtime, bindings: Sequence[Binding], serve: Callable[[], int]
) -> int:
    """Fork the launcher as first process of its own pid, mount and ipc namespaces; await it.

    As first process it takes everything with it when it dies; this process
    forwards signals, and the launcher dies when this process does.
    """
    alive_read, alive_write = os.pipe2(os.O_CLOEXEC)
    report_read, report_write = os.pipe2(os.O_CLOEXEC)
    try:
        unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID)
    except OSError as error:
        raise IsolationRefused(
            "namespaces_unavailable",
            expected="mount, ipc and pid namespaces",
            got=str(error)[:80],
            hint="start as an ordinary user, or give root its capabilities (CAP_SYS_ADMIN)",
        ) from None
    launcher = os.fork()
    if launcher == 0:
        os.close(alive_write)
        os._exit(_first_process(run, runtime, bindings, serve, alive_read, report_write))
    os.close(report_write)
    for number in _STOP_SIGNALS:
        signal.signal(number, lambda received, _frame: os.kill(launcher, received))
    _, status = os.waitpid(launcher, 0)
    with os.fdopen(report_read, "rb") as pipe:
        report = pipe.read(8192)
    if report:
        fields = json.loads(report)
        raise rebuild_refusal(fields.pop("stage"), fields.pop("code"), **fields)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _first_process(  # noqa: PLR0917
    run: str,
    runtime: Runtime,
    bindings: Sequence[Binding],
    serve: Callable[[], int],
    alive: int,
    report: int,
) -> int:
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if select.select([alive], [], [], 0)[0]:
            return _FAILED  # the parent died before the line above
        os.close(alive)
        harden_process()
        build_private_root(run, runtime, bindings)
        return serve()
    except Refusal as refusal:
        os.write(report, json.dumps(refusal.as_json()).encode())
    except BaseException:  # noqa: BLE001 - a forked child must not return into the caller
        traceback.print_exc()
    return _FAILED


def _serve(
    broker_argv: Sequence[str], starter: Starter, state: str, environment: Mapping[str, str]
) -> int:
    here, there = socket.socketpair()
    broker = spawn(
        broker_argv,
        identity=starter.identities.of("broker"),
        environment={
            "PATH": "/usr/bin:/bin",
            "HOME": state,
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
            LAUNCHER_VARIABLE: str(LAUNCHER_DESCRIPTOR),
        },
        descriptors=[there.fileno()],
        standard=(0, 1, 2),
        directory=state,
    )
    there.close()
    server = Server(broker, here, starter)
    for number in _STOP_SIGNALS:
        signal.signal(number, lambda _number, _frame: server.stop())
    return server.run()
