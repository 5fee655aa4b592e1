"""Asks the launcher for things it must refuse, and prints the codes."""

import json
import os
import socket
import sys

from enclave.core.errors import Refusal
from enclave.workload.isolation.limits import Limits
from enclave.workload.launcher.client import CompartmentSpec, LauncherClient

launcher = LauncherClient.from_environment()
here, there = socket.socketpair()
LIMITS = Limits()


def start(kind, descriptors=None, **fields):
    launcher.start(CompartmentSpec(kind, "x", **fields), descriptors)


ATTEMPTS = {
    "unknown_kind": lambda: start("shell"),
    "broker_kind": lambda: start("broker"),
    "probe_without_kind": lambda: start("probe"),
    "kind_with_probe": lambda: start("gate", probe="sandbox"),
    "missing_descriptor": lambda: start("sandbox"),
    "foreign_descriptor": lambda: start("model_host", {"result": there.fileno()}),
    "renamed_descriptor": lambda: start("sandbox", {"other": there.fileno()}),
    "memory_of_sandbox": lambda: start("sandbox", {"result": there.fileno()}, memory="ab" * 16),
    "memory_not_mounted": lambda: start("model_host", memory="cd" * 16),
    "limit_above_ceiling": lambda: start(
        "gate", {"result": there.fileno()}, limits=Limits(processes=10**6)
    ),
    "limit_zero": lambda: start("gate", {"result": there.fileno()}, limits=Limits(wall_seconds=0)),
    "extra_field": lambda: launcher.request({"op": "kill", "compartment": 1, "argv": ["/bin/sh"]}),
    "no_operation": lambda: launcher.request({"op": "exec", "argv": ["/bin/sh"]}),
    "session_path": lambda: launcher.mount_memory("../../../../../../../../etc/x/y/", 4096),
    "session_name": lambda: launcher.mount_memory("AB" * 16, 4096),
    "memory_size": lambda: launcher.mount_memory("ab" * 16, 2**50),
    "memory_absent": lambda: launcher.unmount_memory("ef" * 16),
    "descriptor_beside_kill": lambda: launcher.request(
        {"op": "kill", "compartment": 1}, [there.fileno()]
    ),
}
codes = {}
for name, attempt in ATTEMPTS.items():
    try:
        attempt()
        codes[name] = "accepted"
    except Refusal as refusal:
        codes[name] = refusal.code
print(json.dumps({"codes": codes, "uid": os.getuid(), "argv": sys.argv[1:]}))
