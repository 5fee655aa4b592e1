"""Runs a real launcher with a test's own broker program, and reads what the broker tells.

A broker program is a file in tests/isolation/brokers; it prints JSON lines.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
BROKERS = TESTS / "isolation" / "brokers"
USER = 64099
AS_ROOT = os.geteuid() == 0


@dataclass
class Ended:
    status: int
    lines: list
    stderr: str

    @property
    def last(self):
        return self.lines[-1]


def launcher_command(directory: Path, broker: str, *arguments: str, options=()) -> list[str]:
    run, state = directory / "run", directory / "state"
    run.mkdir(exist_ok=True)
    return [
        sys.executable,
        *("-m", "enclave.workload.launcher"),
        *("--run-directory", str(run), "--state-directory", str(state)),
        *("--readable", str(TESTS), *options, "--"),
        *(sys.executable, "-u", str(BROKERS / broker), *arguments),
    ]


def as_user(directory: Path, command: list[str]) -> list[str]:
    """The command under an ordinary user, in a world where that user reaches the runtime."""
    directory.chmod(0o755)
    for path in [directory, *directory.rglob("*")]:
        os.chown(path, USER, USER)
    mount_point = directory.parent / f"{directory.name}-root"
    mount_point.mkdir(exist_ok=True)
    enter = BROKERS.parent / "enter_as_user.py"
    return [sys.executable, str(enter), str(mount_point), str(directory), str(USER), *command]


def launch(directory: Path, broker: str, *arguments: str, user=False, options=(), timeout=60):
    command = launcher_command(directory, broker, *arguments, options=options)
    if user and AS_ROOT:
        command = as_user(directory, command)
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return Ended(done.returncode, lines, done.stderr)
