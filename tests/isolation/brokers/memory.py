"""Mounts the session memory, uses it, unmounts it, and prints what was seen."""

import json
import os
from pathlib import Path

from enclave.core.errors import Refusal
from enclave.workload.launcher.client import LauncherClient

launcher = LauncherClient.from_environment()
SESSION = "ab" * 16


def code(act):
    try:
        act()
    except Refusal as refusal:
        return refusal.code
    return ""


path = launcher.mount_memory(SESSION, 16 * 1024 * 1024)
mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if path in line]
descriptor = os.open(f"{path}/secret", os.O_CREAT | os.O_RDWR, 0o444)
os.write(descriptor, b"secret")
told = {
    "options": mounts[0].split()[3].split(","),
    "mode": oct(os.stat(path).st_mode & 0o7777),
    "owner": os.stat(path).st_uid == os.getuid(),
    "twice": code(lambda: launcher.mount_memory(SESSION, 4096)),
    "busy": code(lambda: launcher.unmount_memory(SESSION)),
    "again": code(lambda: launcher.unmount_memory(SESSION)),
    "listing": sorted(os.listdir("/")),
}
os.close(descriptor)
path = launcher.mount_memory(SESSION, 4096 * 4)
launcher.unmount_memory(SESSION)
told["gone"] = not Path(path).exists()
print(json.dumps(told))
