"""One harmless start of bwrap, with its complaint read: why it can not work here, by name."""

from __future__ import annotations

import os

from enclave.core.errors import IsolationRefused
from enclave.workload.isolation.runtime import Runtime
from enclave.workload.launcher.spawn import Identity, end_orphans, forget, spawn

_USERNS_HINT = (
    "allow unprivileged user namespaces: sysctl -w user.max_user_namespaces=10000; "
    "on Ubuntu also sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
)
_USERNS_SIGNS = ("namespace", "uid map", "No permissions", "loopback", "Operation not permitted")


def demand_bubblewrap(bwrap: str, runtime: Runtime, identity: Identity) -> None:
    """Refused with `userns_unavailable` or `bwrap_failed` when no compartment can start."""
    arguments = [bwrap, "--unshare-all", "--unshare-user", "--cap-drop", "ALL"]
    for tree in runtime.trees:
        arguments += ["--ro-bind", tree, tree]
    for path, target in runtime.links:
        arguments += ["--symlink", target, path]
    arguments += ["--proc", "/proc", "--dev", "/dev", runtime.python, "-I", "-S", "-c", "pass"]
    read, write = os.pipe2(os.O_CLOEXEC)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        child = spawn(arguments, identity=identity, environment={}, standard=(null, null, write))
    finally:
        os.close(write)
        os.close(null)
    with os.fdopen(read, "rb") as pipe:
        complaint = pipe.read(4096).decode("utf-8", "replace").strip()
    _, status = os.waitpid(child.pid, 0)
    forget(child)
    os.close(child.pidfd)
    end_orphans()
    if status == 0:
        return
    if any(sign in complaint for sign in _USERNS_SIGNS):
        raise IsolationRefused(
            "userns_unavailable",
            expected="unprivileged user namespaces",
            got=complaint[:160],
            hint=_USERNS_HINT,
        )
    raise IsolationRefused(
        "bwrap_failed",
        expected="a bubblewrap that starts",
        got=complaint[:160],
        hint="apt-get install --reinstall bubblewrap",
    )
