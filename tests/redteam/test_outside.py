"""The same attempts with nothing around them succeed: so the probes can fail."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from enclave.workload.isolation.canaries import VARIABLE
from tests.isolation.harness import AS_ROOT, as_user

SCRIPT = Path(__file__).with_name("outside.py")
AT_LEAST = {"root": 70, "user": 40}


@pytest.mark.parametrize("who", ["root", "user"] if AS_ROOT else ["user"])
def test_attempts_succeed_outside(tmp_path, who):
    directory = tmp_path / "w"
    directory.mkdir()
    command = [sys.executable, str(SCRIPT), str(directory), "the-canary"]
    if who == "user" and AS_ROOT:
        command = as_user(directory, command)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, VARIABLE: "the-canary"},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    succeeded = {name for name, outcome in told["outcomes"].items() if outcome == "open"}
    assert len(succeeded) >= AT_LEAST[who], sorted(set(told["outcomes"]) - succeeded)
    assert "failed" not in told["outcomes"].values()
    # an outcome is not only what the probe says: the listeners were really reached
    assert told["touched"] >= 4
    assert succeeded >= {
        *("tcp4", "udp", "unix_abstract", "unix_path", "fast_open", "ptrace", "read_memory"),
        *("environment", "search_proc", "descriptors", "signal", "execute", "user_namespace"),
        *("read_canary", "write_runtime", "symlink", "memory_file", "io_uring", "writable_code"),
        *("fork_bomb", "memory_bomb", "disk_fill", "file_size", "open_files"),
    }
