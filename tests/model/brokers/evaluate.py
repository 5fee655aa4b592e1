"""A broker for tests: serves a model to a bundle, each in its own compartment.

Arguments: model, bundle, suite (directories) and the thread count. Prints the
answers of the host, the result frame and how both compartments ended.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
from pathlib import Path

from enclave.core.errors import Refusal
from enclave.workload.frames import receive_frame, send_frame
from enclave.workload.isolation.inputs import InputFile, send_inputs
from enclave.workload.isolation.limits import GIB, Limits
from enclave.workload.isolation.network import take_listener
from enclave.workload.launcher.client import CompartmentSpec, LauncherClient

SESSION = "cd" * 16
model, bundle, suite = (Path(name) for name in sys.argv[1:4])
threads = int(sys.argv[4])
launcher = LauncherClient.from_environment()
told: dict[str, object] = {}


def copy_protected(directory: str | None, source: Path) -> int:
    """A read-only descriptor of the file's copy in protected memory."""
    if directory is None:
        writable = os.memfd_create(source.name)
    else:
        writable = os.open(f"{directory}/{source.name}", os.O_CREAT | os.O_RDWR, 0o444)
    os.write(writable, source.read_bytes())
    readable = os.open(f"/proc/self/fd/{writable}", os.O_RDONLY)
    os.close(writable)
    return readable


def inputs() -> list[InputFile]:
    return [
        InputFile(tree, path.name, path.stat().st_size, os.open(path, os.O_RDONLY))
        for tree, directory in (("bundle", bundle), ("suite", suite))
        for path in sorted(directory.iterdir())
        if path.is_file()
    ]


try:
    memory = launcher.mount_memory(SESSION, sum(f.stat().st_size for f in model.iterdir()) * 2)
    session = SESSION
except Refusal as refusal:
    told["memory"] = refusal.code
    memory, session = None, ""

limits = Limits(memory_bytes=16 * GIB, processes=256, open_files=4096, cpu_seconds=3600)
host = launcher.start(
    CompartmentSpec("model_host", "model", limits, threads=threads, memory=session)
)
host.wait_sealed(60)
names = sorted(path.name for path in model.iterdir())
descriptors = [copy_protected(memory, model / name) for name in names]
template = hashlib.sha256((model / "chat_template.jinja").read_bytes()).hexdigest()
engine = {
    "dtype": "float32",
    "threads": threads,
    "batch": 1,
    "seed": 0,
    "temperature": "0",
    "top_p": "1",
    "max_new_tokens": 24,
    "max_context": 512,
    "template_sha256": template,
}
files = [
    {"path": name, "size": os.fstat(descriptor).st_size}
    for name, descriptor in zip(names, descriptors, strict=True)
]
host.control.settimeout(120)
send_frame(host.control, {"op": "load", "files": files, "engine": engine}, descriptors)
told["loaded"] = receive_frame(host.control)[0]
for descriptor in descriptors:
    os.close(descriptor)

here, there = socket.socketpair()
sandbox = launcher.start(
    CompartmentSpec("sandbox", "run", Limits(), {"environment": "python-stdlib"}),
    {"result": there.fileno()},
)
there.close()
listener = take_listener(sandbox.control)
send_inputs(sandbox.control, inputs())
sandbox.wait_sealed(60)
send_frame(host.control, {"op": "serve"}, [listener.fileno()])
told["serving"] = receive_frame(host.control)[0]
listener.close()

here.settimeout(250)
started = time.monotonic()
told["frame"] = receive_frame(here)[0]
told["seconds"] = int(time.monotonic() - started)
told["after_frame"] = here.recv(1).decode()
end = sandbox.wait(30)
told["sandbox"] = [end.code, end.status, list(end.tripwires)]
send_frame(host.control, {"op": "stop"})
told["stopped"] = receive_frame(host.control)[0]
end = host.wait(30)
told["host"] = [end.code, end.status, list(end.tripwires)]
if memory is not None:
    for name in names:
        os.unlink(f"{memory}/{name}")
    launcher.unmount_memory(SESSION)
print(json.dumps(told))
