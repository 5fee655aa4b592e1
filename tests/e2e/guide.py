"""Runs the shell blocks of docs/getting-started.md, each on the machine that it names."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.pages import ROOT, fences

PAGE = ROOT / "docs" / "getting-started.md"
MACHINES = ("alice", "bob")
_SECONDS = 300

# What the guide assumes of two machines, on one: files are carried by cp, and nobody needs
# sudo who is root already or goes without.
_FUNCTIONS = """
scp() {{ local to="${{@: -1}}"; cp "${{@:1:$#-1}}" "{homes}/${{to%%:*}}/${{to#*:}}"; }}
sudo() {{ "$@"; }}
"""


@dataclass(frozen=True)
class Block:
    """One block: its machine, what it is (`run`, `serve` or `refused`), a code, its commands."""

    machine: str
    kind: str
    code: str
    text: str


def read_blocks() -> list[Block]:
    blocks = []
    for info, body in fences(PAGE.read_text()):
        words = info.split()
        if len(words) > 1 and words[0] == "sh":
            kind = words[2] if len(words) > 2 else "run"
            blocks.append(Block(words[1], kind, words[3] if len(words) > 3 else "", body))
    return blocks


class Guide:
    """Two home directories and what was exported on each machine so far."""

    def __init__(
        self, homes: Path, listen: str, endpoint: str, *, prefix: Mapping[str, Sequence[str]]
    ) -> None:
        """`prefix`: how a machine is entered, such as a network namespace of its own."""
        self.homes = homes
        self._addresses = (("0.0.0.0:8443", listen), ("bob:8443", endpoint))
        self._prefix = prefix
        self._serving: subprocess.Popen[str] | None = None
        for machine in MACHINES:
            (homes / machine).mkdir(exist_ok=True)
            (homes / f"{machine}.env").touch()
        (homes / "functions.sh").write_text(_FUNCTIONS.format(homes=homes))

    def run(self, block: Block) -> str:
        """Run a block to its end; what it printed. Fails if it ends otherwise than it says."""
        if block.kind == "serve":
            self._serve(block)
            return ""
        done = subprocess.run(
            self._command(block), text=True, capture_output=True, timeout=_SECONDS, check=False
        )
        told = f"$ {block.text}\n{done.stdout}\n{done.stderr}"
        if block.kind == "refused":
            assert done.returncode, told
            assert block.code in done.stderr, told
        else:
            assert done.returncode == 0, told
        assert "Traceback" not in told, told
        return told

    def stop(self) -> None:
        """Ctrl-C in the terminal of the enclave."""
        if self._serving is not None:
            os.killpg(self._serving.pid, signal.SIGINT)
            self._serving.wait(30)

    def _serve(self, block: Block) -> None:
        log = (self.homes / "serve.log").open("w")
        self._serving = subprocess.Popen(
            self._command(block), stdout=subprocess.PIPE, stderr=log, text=True, process_group=0
        )
        out = self._serving.stdout
        assert out is not None
        end = time.monotonic() + 60
        while time.monotonic() < end and self._serving.poll() is None:
            if select.select([out], [], [], 1)[0]:
                line = out.readline()
                assert "Listening on" in line, line
                return
        raise AssertionError((self.homes / "serve.log").read_text())

    def _command(self, block: Block) -> list[str]:
        text = block.text
        for name, address in self._addresses:
            text = text.replace(name, address)
        # A person reads the plan and says yes.
        text = re.sub(r"\b(owner|evaluator) approve\b", r"\1 approve --yes", text)
        env = self.homes / f"{block.machine}.env"
        script = (
            f"set -e; source {self.homes}/functions.sh; source {env}; cd {ROOT}\n"
            f"{text}\nexport -p > {env}"
        )
        entered = self._prefix.get(block.machine, ())
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        home = f"HOME={self.homes / block.machine}"
        return [
            *entered,
            "env",
            home,
            f"PATH={path}",
            "PYTHONDONTWRITEBYTECODE=1",
            "bash",
            "-c",
            script,
        ]
