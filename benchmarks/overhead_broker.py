"""The broker of overhead.py: compartments and the plain loop in alternation.

Arguments: a directory with model, bundle and suite; rounds; threads.  Prints
one JSON object.  Started by the launcher only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from enclave.cli.demo_assets.plain_loop import PlainLoop
from enclave.core.errors import IsolationRefused
from enclave.workload.frames import receive_frame, send_frame
from enclave.workload.isolation.inputs import InputFile, send_inputs
from enclave.workload.isolation.limits import GIB, Limits
from enclave.workload.isolation.network import take_listener
from enclave.workload.launcher.client import CompartmentSpec, LauncherClient

_SESSION = "0b" * 16
_HOST_LIMITS = Limits(
    wall_seconds=86400, cpu_seconds=864000, memory_bytes=32 * GIB, processes=256, open_files=4096
)
_SANDBOX_LIMITS = Limits(wall_seconds=86400, cpu_seconds=86400)


class Enclave:
    """A confined model host over protected memory, and a fresh sandbox a round."""

    def __init__(self, world: Path, threads: int) -> None:
        self._world = world
        self._launcher = LauncherClient.from_environment()
        paths = sorted((world / "model").iterdir())
        total = sum(path.stat().st_size for path in paths)
        try:
            directory = self._launcher.mount_memory(_SESSION, total + 64 * 2**20)
            self.memory, session = "huge-page tmpfs", _SESSION
        except IsolationRefused:
            directory, self.memory, session = "", "memfd", ""
        self._host = self._launcher.start(
            CompartmentSpec("model_host", "model", _HOST_LIMITS, threads=threads, memory=session)
        )
        self._host.wait_sealed(60)
        template = hashlib.sha256((world / "model" / "chat_template.jinja").read_bytes())
        engine = {
            "dtype": "float32",
            "threads": threads,
            "batch": 1,
            "seed": 0,
            "temperature": "0",
            "top_p": "1",
            "max_new_tokens": 24,
            "max_context": 2048,
            "template_sha256": template.hexdigest(),
        }
        files = [{"path": path.name, "size": path.stat().st_size} for path in paths]
        descriptors = [_protect(path, directory) for path in paths]
        self._ask({"op": "load", "files": files, "engine": engine}, descriptors)

    def run(self) -> tuple[float, dict[str, Any]]:
        """Seconds from the bundle's first progress to its result frame, and that frame."""
        result, result_end = socket.socketpair()
        with result:
            with result_end:
                sandbox = self._launcher.start(
                    CompartmentSpec(
                        "sandbox", "run", _SANDBOX_LIMITS, {"environment": "python-stdlib"}
                    ),
                    {"result": result_end.fileno()},
                )
            with take_listener(sandbox.control) as listener:
                self._ask({"op": "serve"}, [listener.fileno()])
            with _inputs(self._world) as files:
                send_inputs(sandbox.control, files)
            sandbox.wait_sealed(60)
            receive_frame(sandbox.control)
            started = time.perf_counter()
            frame, _ = receive_frame(result)
            seconds = time.perf_counter() - started
            sandbox.wait(30)
            sandbox.close()
        return seconds, frame

    def _ask(self, message: dict[str, Any], descriptors: list[int]) -> None:
        send_frame(self._host.control, message, descriptors)
        answer, _ = receive_frame(self._host.control)
        if answer["op"] == "refused":
            raise SystemExit(f"model host: {answer['refusal']['code']}")


def _protect(path: Path, directory: str) -> int:
    """A read-only descriptor of the file's copy in protected memory."""
    if directory:
        writable = os.open(f"{directory}/{path.name}", os.O_CREAT | os.O_RDWR, 0o444)
    else:
        writable = os.memfd_create(path.name)
    with path.open("rb") as source:
        while os.sendfile(writable, source.fileno(), None, 2**30):
            pass
    readable = os.open(f"/proc/self/fd/{writable}", os.O_RDONLY)
    os.close(writable)
    return readable


@contextlib.contextmanager
def _inputs(world: Path) -> Iterator[list[InputFile]]:
    files = [
        InputFile(tree, path.name, path.stat().st_size, os.open(path, os.O_RDONLY))
        for tree in ("bundle", "suite")
        for path in sorted((world / tree).iterdir())
    ]
    try:
        yield files
    finally:
        for file in files:
            os.close(file.descriptor)


def main() -> None:
    world, rounds, threads = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    enclave = Enclave(world, threads)
    loop = PlainLoop(world / "model", threads=threads)
    suite = world / "suite"
    loop.run(suite)  # both warm: pages mapped, kernels chosen
    enclave.run()
    enclave_seconds, plain_seconds = [], []
    for _ in range(rounds):
        seconds, frame = enclave.run()
        enclave_seconds.append(seconds)
        outcome = loop.run(suite)
        plain_seconds.append(outcome.run_seconds)
    shares = ("truthfulqa_mc1_accuracy", "arithmetic_accuracy")
    figures = {
        "enclave_seconds": enclave_seconds,
        "plain_seconds": plain_seconds,
        "items": outcome.items,
        "memory": enclave.memory,
        "same_numbers": all(
            float(frame["metrics"][name]["value"]) == round(float(getattr(outcome, name)), 6)
            for name in shares
        ),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
