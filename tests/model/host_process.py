"""A real model host in a process of its own, and a real runner in another."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from enclave.workload.frames import receive_frame, send_frame

_RUNNER = """
import json, socket, sys
from enclave.workload.sandbox.runner import run
control, result = (socket.socket(fileno=int(n)) for n in sys.argv[1:3])
bundle, suite, url, settings = sys.argv[3:]
sys.exit(run(control=control, result=result, settings=json.loads(settings),
             bundle=bundle, suite=suite, model_url=url))
"""


def engine_settings(model: Path, **changes: Any) -> dict[str, Any]:
    """The plan's `engine` object for a model directory."""
    template = model / "chat_template.jinja"
    text = template.read_bytes() if template.exists() else b""
    return {
        "dtype": "float32",
        "threads": 1,
        "batch": 1,
        "seed": 7,
        "temperature": "0",
        "top_p": "1",
        "max_new_tokens": 32,
        "max_context": 256,
        "template_sha256": hashlib.sha256(text).hexdigest(),
        **changes,
    }


class HostProcess:
    """`python -m enclave.workload.model_host` with its control socket."""

    def __init__(self) -> None:
        self.control, child = socket.socketpair()
        self.control.settimeout(120)
        with child:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "enclave.workload.model_host", str(child.fileno())],
                pass_fds=[child.fileno()],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        self.listener: socket.socket | None = None

    def ask(self, message: Mapping[str, Any], descriptors: list[int] | None = None) -> Any:
        send_frame(self.control, message, descriptors or [])
        return receive_frame(self.control)[0]

    def load(self, model: Path, engine: Mapping[str, Any]) -> Any:
        names = sorted(p.name for p in model.iterdir())
        descriptors = [os.open(model / name, os.O_RDONLY) for name in names]
        try:
            files = [
                {"path": name, "size": os.fstat(descriptor).st_size}
                for name, descriptor in zip(names, descriptors, strict=True)
            ]
            message = {"op": "load", "files": files, "engine": dict(engine)}
            return self.ask(message, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def serve(self) -> str:
        self.listener = socket.create_server(("127.0.0.1", 0))
        assert self.ask({"op": "serve"}, [self.listener.fileno()]) == {"op": "serving"}
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def close(self) -> tuple[bytes, bytes]:
        """End the process and return what it wrote to its standard streams."""
        self.control.close()
        if self.listener is not None:
            self.listener.close()
        try:
            return self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.communicate()


@contextlib.contextmanager
def served(model: Path, **changes: Any) -> Iterator[tuple[HostProcess, str]]:
    """A host that serves `model`, and its base URL."""
    host = HostProcess()
    try:
        answer = host.load(model, engine_settings(model, **changes))
        assert answer["op"] == "loaded", answer
        yield host, host.serve()
    finally:
        host.close()


def run_bundle(
    bundle: Path, suite: Path, url: str, *, environment: str = "python-stdlib", timeout: float = 250
) -> tuple[Any, list[Any]]:
    """Run a bundle in a process of its own: the result frame and the progress frames."""
    import json

    control, child_control = socket.socketpair()
    result, child_result = socket.socketpair()
    settings = json.dumps({"environment": environment})
    with control, result, child_control, child_result:
        process = subprocess.Popen(
            [
                *(sys.executable, "-c", _RUNNER),
                *(str(child_control.fileno()), str(child_result.fileno())),
                *(str(bundle), str(suite), url, settings),
            ],
            pass_fds=[child_control.fileno(), child_result.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        child_control.close()
        child_result.close()
        result.settimeout(timeout)
        frame, _ = receive_frame(result)
        output, _ = process.communicate(timeout=30)
        assert output == b"", output
        assert process.returncode == 0
        assert result.recv(1) == b""
        return frame, list(_progress(control))


def _progress(control: socket.socket) -> Iterator[Any]:
    control.settimeout(1)
    with contextlib.suppress(Exception):
        while True:
            yield receive_frame(control)[0]
