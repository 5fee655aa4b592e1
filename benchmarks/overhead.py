"""Run time through the model host and the bundle runner against a plain transformers loop.

Both score the same prompts of the demonstration on the same model, start-up
apart, in alternation; the key `enclave_vs_plain` is the median of the rounds'
ratios.  With --json the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import enclave.cli.demo_assets as assets
from enclave.cli.demo_assets.model import default_cache, prepare_model
from enclave.cli.demo_assets.plain_loop import PlainLoop
from enclave.cli.demo_assets.suites import write_suites
from enclave.workload.frames import receive_frame, send_frame

_BUNDLE = Path(assets.__file__).parent / "bundle"
_RUNNER = """
import json, socket, sys
from enclave.workload.sandbox.runner import run
control, result = (socket.socket(fileno=int(n)) for n in sys.argv[1:3])
bundle, suite, url, settings = sys.argv[3:]
sys.exit(run(control=control, result=result, settings=json.loads(settings),
             bundle=bundle, suite=suite, model_url=url))
"""


class Host:
    """The model host in its own process, serving on a loopback port."""

    def __init__(self, model: Path, threads: int) -> None:
        self.control, child = socket.socketpair()
        with child:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "enclave.workload.model_host", str(child.fileno())],
                pass_fds=[child.fileno()],
                stderr=subprocess.DEVNULL,
            )
        paths = sorted(model.iterdir())
        descriptors = [os.open(path, os.O_RDONLY) for path in paths]
        files = [{"path": path.name, "size": path.stat().st_size} for path in paths]
        template = (model / "chat_template.jinja").read_bytes()
        engine = {
            "dtype": "float32",
            "threads": threads,
            "batch": 1,
            "seed": 0,
            "temperature": "0",
            "top_p": "1",
            "max_new_tokens": 24,
            "max_context": 2048,
            "template_sha256": hashlib.sha256(template).hexdigest(),
        }
        self._ask({"op": "load", "files": files, "engine": engine}, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ask({"op": "serve"}, [self._listener.fileno()])
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _ask(self, message: dict[str, Any], descriptors: list[int]) -> None:
        send_frame(self.control, message, descriptors)
        answer, _ = receive_frame(self.control)
        if answer["op"] == "refused":
            raise SystemExit(f"model host: {answer['refusal']['code']}")

    def close(self) -> None:
        self.control.close()
        self._process.wait(30)


def run_enclave(host: Host, suite: Path) -> tuple[float, dict[str, Any]]:
    """Seconds from the bundle's first request to its result frame, and that frame."""
    control, child_control = socket.socketpair()
    result, child_result = socket.socketpair()
    with control, result:
        with child_control, child_result:
            arguments = [str(_BUNDLE), str(suite), host.url]
            process = subprocess.Popen(
                [
                    *(sys.executable, "-c", _RUNNER),
                    *(str(child_control.fileno()), str(child_result.fileno()), *arguments),
                    json.dumps({"environment": "python-stdlib"}),
                ],
                pass_fds=[child_control.fileno(), child_result.fileno()],
            )
        receive_frame(control)
        started = time.perf_counter()
        frame, _ = receive_frame(result)
        seconds = time.perf_counter() - started
        process.wait(30)
    return seconds, frame


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", type=int, default=10, help="items of each suite a round")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--cache", type=Path, default=default_cache())
    arguments = parser.parse_args()
    model = prepare_model(arguments.cache, report=lambda stage: print(f"model: {stage}"))
    enclave: list[float] = []
    plain: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        suite = Path(name)
        write_suites(suite, seed=1, items=arguments.items)
        loop = PlainLoop(model, threads=arguments.threads)
        host = Host(model, arguments.threads)
        loop.run(suite)  # both warm: pages mapped, kernels chosen
        run_enclave(host, suite)
        for _ in range(arguments.rounds):
            seconds, frame = run_enclave(host, suite)
            enclave.append(seconds)
            outcome = loop.run(suite)
            plain.append(outcome.run_seconds)
        host.close()
    equal = all(
        float(frame["metrics"][name]["value"]) == float(plain_value)
        for name, plain_value in (
            ("truthfulqa_mc1_accuracy", outcome.truthfulqa_mc1),
            ("arithmetic_accuracy", outcome.arithmetic_exact),
        )
    )
    ratio = statistics.median(a / b for a, b in zip(enclave, plain, strict=True))
    table = Table("", "median s", "best s", title=f"{outcome.items} items, {len(plain)} rounds")
    for label, seconds in (("host and runner", enclave), ("plain loop", plain)):
        table.add_row(label, f"{statistics.median(seconds):.2f}", f"{min(seconds):.2f}")
    console = Console()
    console.print(table)
    console.print(f"enclave_vs_plain {ratio:.3f}; the same numbers: {equal}")
    if arguments.json:
        result = {
            "enclave_vs_plain": round(ratio, 3),
            "enclave_seconds": round(statistics.median(enclave), 3),
            "plain_seconds": round(statistics.median(plain), 3),
            "items": outcome.items,
            "threads": arguments.threads,
            "same_numbers": equal,
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
