"""Processes of their own: core files, ptrace, and how much memory sealing and opening take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sealed.artifacts import seal_tree

MIB = 1024 * 1024
NOBODY = 65534


def run(code: str, *arguments: object, timeout: float = 120) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    return result


HARDENED = """
import json, os, resource, subprocess, sys
from pathlib import Path
from enclave.core.sealed import ArtifactLimits
from enclave.workload.memory.memfd import MemfdMemory
from enclave.workload.memory.process import disable_core_dumps, make_undumpable
from enclave.workload.opening import open_artifact
from enclave.workload.segment_source import SealedDirectory

directory, key, salt, commitment, user = sys.argv[1:]
source = SealedDirectory(Path(directory))
source.descriptor(0), source.descriptor(1)
if int(user):
    os.setgroups([]); os.setgid(int(user)); os.setuid(int(user))
disable_core_dumps()
make_undumpable()
memory = MemfdMemory()
opened = open_artifact(source, bytes.fromhex(key), bytes.fromhex(salt), commitment, memory,
                       ArtifactLimits(), 2)
content = os.pread(opened.files[0].fd, 100, 0).decode()
peek = subprocess.run(["cat", f"/proc/{os.getpid()}/environ"], capture_output=True)
wiped = memory.wipe()
print(json.dumps({"content": content, "peek": peek.returncode, "bytes": wiped.bytes,
                  "core": resource.getrlimit(resource.RLIMIT_CORE)}))
"""


@pytest.mark.root
@pytest.mark.parametrize("user", [0, NOBODY])
def test_a_hardened_process_still_opens(tmp_path: Path, user: int) -> None:
    if user and os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    sealed = seal_tree(tmp_path, {"a": b"content"})
    result = run(
        HARDENED, sealed.directory, sealed.key.hex(), sealed.salt.hex(), sealed.commitment, user
    )
    assert result["content"] == "content"
    assert result["core"] == [0, 0]
    assert result["bytes"] == 7
    if user:
        assert result["peek"] != 0, "its own user cannot look into it"


MEASURE = """
import json, resource, sys
from pathlib import Path
from enclave.clients.party.sealing import seal_artifact
from enclave.core.sealed import ArtifactLimits
from enclave.workload.memory.memfd import MemfdMemory
from enclave.workload.opening import open_artifact
from enclave.workload.segment_source import SealedDirectory

def peak():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024

start = peak()
sealed = seal_artifact(Path(sys.argv[1]), Path(sys.argv[2]), "model")
print(json.dumps({"start": start, "sealing": peak()}))
"""


@pytest.mark.slow
def test_sealing_takes_constant_memory(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with (source / "model.safetensors").open("wb") as file:
        file.truncate(400 * MIB)
    result = run(MEASURE, source, tmp_path / "sealed")
    assert float(str(result["sealing"])) - float(str(result["start"])) < 40
    assert float(str(result["sealing"])) < 150
