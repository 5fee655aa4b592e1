"""The demonstration's processes: each command of a party, and the workload, as a user runs them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from enclave.core.errors import RunRefused, rebuild_refusal

_COMMAND_SECONDS = 1200
_START_SECONDS = 120
_STOP_SECONDS = 30


def command_line(*arguments: str) -> list[str]:
    """The argument list of a `doubleblind` command, run by this very interpreter."""
    return [sys.executable, "-m", "enclave.cli.main", *arguments]


def run_command(*arguments: str) -> dict[str, Any]:
    """Run a command with `--json`; its result object. Raises what it refused with."""
    done = subprocess.run(
        command_line(*arguments, "--json"),
        capture_output=True,
        timeout=_COMMAND_SECONDS,
        check=False,
        text=True,
    )
    answer = _last_object(done.stdout)
    if done.returncode != 0:
        raise _refusal(arguments, answer, done.returncode)
    return answer


def show_command(*arguments: str) -> None:
    """Run a command in the foreground: its own text and bars are what the user sees."""
    done = subprocess.run(command_line(*arguments), timeout=_COMMAND_SECONDS, check=False)
    if done.returncode != 0:
        raise _refusal(arguments, {}, done.returncode)


@contextmanager
def running_workload(state: Path, plan: Path, log: Path) -> Iterator[dict[str, Any]]:
    """The workload as a process of its own; yields what it says of itself once it listens."""
    arguments = ["serve", "--plan", str(plan), "--state", str(state), "--listen", "127.0.0.1:0"]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command_line(*arguments, "--json"),
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        yield _await_ready(process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _await_ready(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    if process.stdout is None:
        raise RuntimeError("the workload's stdout is a pipe")
    line = b""
    end = time.monotonic() + _START_SECONDS
    while not line.endswith(b"\n"):
        left = end - time.monotonic()
        readable, _, _ = select.select([process.stdout], [], [], max(left, 0))
        part = os.read(process.stdout.fileno(), 65536) if readable else b""
        if not part:
            raise RunRefused(
                "demo_workload_failed",
                expected="a workload that listens",
                got=f"exit status {process.poll()}",
                hint="see workload.log in the demo's directory",
            )
        line += part
    answer = _last_object(line.decode())
    if "error" in answer:
        raise _refusal(("serve",), answer, 1)
    return answer


def _last_object(text: str) -> dict[str, Any]:
    lines = text.strip().splitlines()
    try:
        value = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _refusal(arguments: Sequence[str], answer: dict[str, Any], status: int) -> Exception:
    error = answer.get("error")
    if isinstance(error, dict) and {"stage", "code"} <= set(error):
        fields = {name: str(error.get(name, "")) for name in ("expected", "got", "hint")}
        return rebuild_refusal(error["stage"], error["code"], **fields)
    return RunRefused(
        "demo_command_failed",
        expected=f"doubleblind {' '.join(arguments[:2])} to succeed",
        got=f"exit status {status}",
    )
