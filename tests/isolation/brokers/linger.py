"""Starts one compartment of each kind, mounts memory, says so, and waits to be killed."""

import json
import sys
import time

from enclave.workload.isolation.canaries import Canaries
from enclave.workload.isolation.limits import Limits
from enclave.workload.isolation.network import take_listener
from enclave.workload.launcher.client import CompartmentSpec, LauncherClient
from enclave.workload.launcher.selftest import PROBE_LIMITS

launcher = LauncherClient.from_environment()
with Canaries(PROBE_LIMITS) as canaries:
    model = launcher.start(
        CompartmentSpec("model_host", "m", Limits(wall_seconds=60, memory_bytes=8 * 2**30))
    )
    model.wait_sealed(20)
    settings = {"probes": ["tcp4"], "forked": False, "targets": canaries.targets.as_json()}
    waiting = launcher.start(CompartmentSpec("probe", "w", PROBE_LIMITS, settings, probe="sandbox"))
    take_listener(waiting.control).close()
    if "--memory" in sys.argv:
        launcher.mount_memory("ab" * 16, 16 * 1024 * 1024)
    print(json.dumps({"ready": True}), flush=True)
    time.sleep(60)
