"""Rooms of the workload as the attacks start them: gates in threads, a model host in a process."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Any

from enclave.core.errors import IsolationRefused
from enclave.workload.gate.room import run as run_gate
from enclave.workload.launcher.client import CompartmentSpec
from tests.model.host_process import HostProcess


class GateThreads:
    """A launcher that knows gates only, and runs each in a thread."""

    def start(self, spec: CompartmentSpec, descriptors: Mapping[str, int]) -> GateThread:
        if spec.kind != "gate":
            raise IsolationRefused("sandbox_unavailable", expected="no compartments here")
        return GateThread(descriptors["result"])


class GateThread:
    """The gate's own loop on real sockets; see `enclave.workload.launcher.client.Compartment`."""

    def __init__(self, result: int) -> None:
        self.exit: str | None = None
        self.control, there = socket.socketpair()
        inside = socket.socket(fileno=os.dup(result))

        def serve() -> None:
            with there, inside:
                run_gate(control=there, result=inside, settings={})

        self._thread = Thread(target=serve, daemon=True)
        self._thread.start()

    def wait_sealed(self, _seconds: float) -> None:
        """A thread is never sealed."""

    def kill(self) -> None:
        self.control.shutdown(socket.SHUT_RDWR)

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)
        self.exit = "killed"

    def close(self) -> None:
        self.control.close()


class ModelHostProcess(HostProcess):
    """The real model host; `flags` are those with which the files are opened."""

    def load(self, model: Path, engine: Mapping[str, Any], flags: int = os.O_RDONLY) -> Any:
        paths = sorted(model.iterdir())
        descriptors = [os.open(path, flags) for path in paths]
        try:
            files = [{"path": path.name, "size": path.stat().st_size} for path in paths]
            return self.ask({"op": "load", "files": files, "engine": dict(engine)}, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
