"""kill -9 in the middle of sealing: nothing opens, and sealing again works."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from enclave.clients.party.sealing import seal_artifact
from enclave.core.errors import SealedRefused
from enclave.workload.segment_source import SealedDirectory
from tests.sealed.artifacts import Sealed, read_opened, write_tree

SEAL = """
import os, signal, sys, time
from pathlib import Path
from enclave.clients.party.sealing import seal_artifact

source, destination, where = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

def progress(done, total):
    print(done, flush=True)
    time.sleep(0.01)

def die(*_):
    if where == "before_publish":
        os.kill(os.getpid(), signal.SIGKILL)

seal_artifact(source, destination, "suite", progress=progress, before_publish=die)
print("sealed", flush=True)
"""

FILES = {"a.txt": b"a" * 5, "b.bin": bytes(range(256)) * 4096 * 24, "c.txt": b"c"}


def seal_and_die(tmp_path: Path, segments: int) -> None:
    """Seal in a process of its own and kill it after some segments; -1: before the name."""
    where = "before_publish" if segments < 0 else "segment"
    command = [sys.executable, "-c", SEAL, tmp_path / "source", tmp_path / "sealed", where]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            for number, line in enumerate(process.stdout):
                assert line.strip() != b"sealed"
                if number == segments:
                    process.send_signal(signal.SIGKILL)
                    break
        finally:
            if segments >= 0:
                process.kill()
            process.wait(60)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("segments", [0, 3, 17, -1])
def test_killed(tmp_path: Path, segments: int) -> None:
    source = write_tree(tmp_path / "source", FILES)
    seal_and_die(tmp_path, segments)
    assert not (tmp_path / "sealed").exists()
    partial = tmp_path / ".sealed.sealing"
    assert partial.is_dir()
    if segments >= 0:
        with pytest.raises(SealedRefused) as caught:
            SealedDirectory(partial)
        assert caught.value.code == "index_missing"
    sealed = seal_artifact(source, tmp_path / "sealed", "suite")
    assert not partial.exists()
    opened = Sealed(tmp_path / "sealed", sealed.key, sealed.salt, sealed.commitment).open()
    assert read_opened(opened) == FILES
