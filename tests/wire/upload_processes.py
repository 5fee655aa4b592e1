"""Server and client as processes of their own, to be killed: `python -m tests.wire.upload_processes`."""

from __future__ import annotations

import enclave.wire  # noqa: F401 # isort: skip

import json
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attestation.errors import AttestationError
from enclave.clients.channel.bootstrap import fetch_server_certificate
from enclave.clients.channel.client import EnclaveClient, Timeouts
from enclave.clients.channel.upload import upload_artifact
from enclave.core.errors import Refusal
from enclave.core.plan import parse_plan
from tests.core.builders import PartyKeys
from tests.wire.enclaves import Enclave, WireWorld, certificate_pem, key_pem

ROOT = Path(__file__).resolve().parents[2]


def serve(store: str, plan_file: str) -> None:
    plan = parse_plan(Path(plan_file).read_bytes())
    world = WireWorld(*[None] * 5, plan)  # type: ignore[arg-type]
    with Enclave(world, Path(store)) as running:
        say({"port": running.server.port})
        signal.pause()


def upload(endpoint: str, key: str, certificate: str, plan_file: str, directory: str) -> None:
    plan = parse_plan(Path(plan_file).read_bytes())
    client = EnclaveClient(
        endpoint,
        fetch_server_certificate(endpoint, 10),
        client_key_pem=Path(key).read_bytes(),
        client_certificate_pem=Path(certificate).read_bytes(),
        plan=plan.digest,
        timeouts=Timeouts(20, 300),
    )
    try:
        report = upload_artifact(
            client, plan, "model", Path(directory),
            lambda done, total: say({"durable": done, "total": total}),
        )  # fmt: skip
    except (Refusal, AttestationError) as refusal:
        say({"code": refusal.code})
    else:
        say({"sent": report.sent_segments, "skipped": report.skipped_segments})
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    say({"peak_rss_mb": int(peak.group(1)) // 1024})


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


@dataclass
class Spawned:
    """A child that speaks JSON lines."""

    process: subprocess.Popen[str]

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"child ended with {self.process.wait()}")
        heard: dict[str, Any] = json.loads(line)
        return heard

    def hear_until(self, name: str) -> dict[str, Any]:
        heard: dict[str, Any] = {}
        while name not in heard:
            assert name == "code" or "code" not in heard, heard
            heard = self.hear()
        return heard

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def spawn(*arguments: str) -> Spawned:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.wire.upload_processes", *arguments],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return Spawned(process)


@dataclass
class Site:
    """Files that both processes need."""

    root: Path
    world: WireWorld

    def write(self, keys: PartyKeys) -> None:
        (self.root / "key.pem").write_bytes(key_pem(keys))
        (self.root / "certificate.pem").write_bytes(certificate_pem(keys))
        (self.root / "plan.json").write_bytes(self.world.plan.to_bytes())

    def spawn_server(self, store: Path) -> tuple[Spawned, str]:
        server = spawn("serve", str(store), str(self.root / "plan.json"))
        return server, f"127.0.0.1:{server.hear()['port']}"

    def spawn_client(self, endpoint: str, directory: Path) -> Spawned:
        files = [str(self.root / name) for name in ("key.pem", "certificate.pem", "plan.json")]
        return spawn("upload", endpoint, *files, str(directory))


if __name__ == "__main__":
    {"serve": serve, "upload": upload}[sys.argv[1]](*sys.argv[2:])
