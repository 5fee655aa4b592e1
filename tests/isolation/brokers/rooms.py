"""The real model host and the real gate: their programs load under their own filters."""

import json
import socket

from enclave.core.errors import Refusal
from enclave.workload.frames import receive_frame, send_frame
from enclave.workload.isolation.limits import GIB, Limits
from enclave.workload.launcher.client import CompartmentSpec, LauncherClient

launcher = LauncherClient.from_environment()
told = {}
try:
    memory = "ab" * 16
    launcher.mount_memory(memory, 16 * 1024 * 1024)
except Refusal:
    memory = ""
model = launcher.start(
    CompartmentSpec("model_host", "m", Limits(memory_bytes=16 * GIB, processes=256), memory=memory)
)
here, there = socket.socketpair()
gate = launcher.start(CompartmentSpec("gate", "g"), {"result": there.fileno()})
for compartment, message in (
    (model, {"op": "stop"}),
    (gate, {"op": "release", "run": 1, "slot": "x"}),
):
    compartment.wait_sealed(30)
    compartment.control.settimeout(60)
    send_frame(compartment.control, message)
    answer, _ = receive_frame(compartment.control)
    told[answer["op"]] = answer.get("refusal", {}).get("code", "")
    compartment.close()
told["ends"] = [[c.wait(20).code, c.wait(20).status] for c in (model, gate)]
told["tripped"] = model.tripped + gate.tripped
print(json.dumps(told))
