"""MOUNT_POINT DIRECTORY UID COMMAND...: run COMMAND as an ordinary user who owns DIRECTORY.

The interpreter may lie beneath a closed home directory; the private root of
the launcher's own code makes it reachable.
"""

import os
import sys
from pathlib import Path

from enclave.workload.isolation.canaries import VARIABLE
from enclave.workload.isolation.kernel import CLONE_NEWNS, unshare
from enclave.workload.isolation.runtime import discover_runtime
from enclave.workload.launcher.root import Binding, build_private_root

mount_point, directory, uid, *command = sys.argv[1:]
tests = str(Path(__file__).resolve().parent.parent)
runtime = discover_runtime()
unshare(CLONE_NEWNS)
build_private_root(
    mount_point, runtime, [Binding(directory, read_only=False), Binding(tests, read_only=True)]
)
os.setgroups([])
os.setresgid(int(uid), int(uid), int(uid))
os.setresuid(int(uid), int(uid), int(uid))
kept = {name: os.environ[name] for name in (VARIABLE,) if name in os.environ}
os.execve(command[0], command, {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **kept})
