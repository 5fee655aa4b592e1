"""Starts compartments of each kind and prints how each start, limit and kill went."""

import json
import os
import socket
import threading
import time

from enclave.core.errors import Refusal
from enclave.workload.frames import receive_frame, send_frame
from enclave.workload.isolation.canaries import Canaries
from enclave.workload.isolation.limits import Limits
from enclave.workload.isolation.network import take_listener
from enclave.workload.launcher.client import CompartmentSpec, LauncherClient
from enclave.workload.launcher.selftest import PROBE_LIMITS

launcher = LauncherClient.from_environment()
told = {}


def settings(canaries, *probes):
    return {"probes": list(probes), "forked": False, "targets": canaries.targets.as_json()}


def end(compartment):
    result = compartment.wait(20)
    return [result.code, result.status]


def first_to_go():
    """How many processes the kernel would end before all others."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/oom_score_adj", encoding="ascii") as file:
                count += file.read().strip() == "1000"
        except OSError:
            continue
    return count


def descriptors():
    return len(os.listdir("/proc/self/fd"))


with Canaries(PROBE_LIMITS) as canaries:
    # a compartment that never gets its inputs can be killed
    before = first_to_go()
    waiting = launcher.start(
        CompartmentSpec("probe", "w", PROBE_LIMITS, settings(canaries, "tcp4"), probe="sandbox")
    )
    take_listener(waiting.control).close()
    told["first_to_go"] = first_to_go() - before
    waiting.kill()
    told["killed"] = end(waiting)
    waiting.close()

    milliseconds = []
    for _ in range(4):
        begun = time.monotonic()
        gate = launcher.start(
            CompartmentSpec("probe", "g", PROBE_LIMITS, settings(canaries, "tcp4"), probe="gate")
        )
        gate.wait_sealed(10)
        milliseconds.append(int((time.monotonic() - begun) * 1000))
        told["message"] = receive_frame(gate.control)[0]
        told["exited"] = end(gate)
        gate.close()

    told["quickest_milliseconds"] = min(milliseconds)

    # a listener made inside is served outside, from another network namespace
    sandbox = launcher.start(
        CompartmentSpec("probe", "s", PROBE_LIMITS, settings(canaries, "tcp4"), probe="sandbox")
    )
    listener = take_listener(sandbox.control)
    told["listener"] = listener.getsockname()
    try:
        socket.create_connection(listener.getsockname(), 1).close()
        told["reached_from_outside"] = True
    except OSError:
        told["reached_from_outside"] = False
    # hostile inputs: the path is refused before anything is written
    read, write = os.pipe()
    send_frame(
        sandbox.control,
        {
            "event": "inputs",
            "last": True,
            "files": [{"tree": "bundle", "path": "a/../../etc/x", "size": 1}],
        },
        [read],
    )
    try:
        sandbox.wait_sealed(10)
        told["hostile_input"] = "accepted"
    except Refusal as refusal:
        told["hostile_input"] = refusal.code
    told["hostile_input_end"] = end(sandbox)
    sandbox.close()
    listener.close()
    os.close(read)
    os.close(write)

    # limits that the launcher and the kernel keep; the model host waits for frames by itself
    for name, limits in {
        "limit_wall": Limits(wall_seconds=1, memory_bytes=8 * 2**30),
        "limit_cpu": Limits(wall_seconds=30, cpu_seconds=1, memory_bytes=8 * 2**30),
    }.items():
        model = launcher.start(CompartmentSpec("model_host", name, limits))
        told[name] = end(model)
        model.close()

    # nothing is left in the broker
    before = descriptors()
    for _ in range(5):
        gate = launcher.start(
            CompartmentSpec("probe", "g", PROBE_LIMITS, settings(canaries, "tcp4"), probe="gate")
        )
        gate.wait(10)
        gate.close()
    told["leaked_descriptors"] = descriptors() - before
    told["threads"] = threading.active_count()
print(json.dumps(told))
