"""Upload of a sealed artifact against a raw TLS 1.3 socket: `python benchmarks/upload.py --json`.

Both send the same ciphertext between two processes over loopback to the same
disk.  The yardstick is a plain socket loop with one fdatasync at its end; the
upload authenticates both sides, makes every 16 MiB durable, journals and acknowledges.
Rounds alternate, figures are medians, and memory is each process's own peak.
"""

from __future__ import annotations

import enclave.wire  # noqa: F401 # isort: skip -- first: it prepares gRPC's environment

import argparse
import datetime as dt
import json
import os
import re
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from enclave.clients.channel.bootstrap import fetch_server_certificate
from enclave.clients.channel.client import EnclaveClient
from enclave.clients.channel.upload import upload_artifact
from enclave.core.plan import Plan, parse_plan
from enclave.core.sealed.index import SealedIndex, stream_name
from enclave.core.sealed.stream import StreamLayout
from enclave.workload.service.facade import EnclaveFacade
from enclave.workload.service.identity import make_server_identity
from enclave.workload.service.server import serve_enclave
from enclave.workload.service.upload_store import UploadStore, open_upload_store

ROOT = Path(__file__).resolve().parents[1]
MIB = 1024 * 1024
ROUNDS = 3


class StoreOnly(EnclaveFacade):
    """A facade that stores uploads and nothing else."""

    def __init__(self, plan: Plan, root: Path) -> None:
        self._plan = plan
        self._store = open_upload_store(root, plan, "model")

    def plans(self) -> Mapping[str, Plan]:
        return {self._plan.digest: self._plan}

    def upload_store(self, plan: str, artifact: str) -> UploadStore:
        return self._store

    def artifact_uploaded(self, plan: str, artifact: str) -> None:
        return


def say(**facts: float) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def peak_rss_mb() -> float:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found.group(1)) / 1024 if found else 0.0


def enclave_receive(site: Path) -> None:
    plan = parse_plan((site / "plan.json").read_bytes())
    facade = StoreOnly(plan, site / "store")  # type: ignore[abstract]
    identity = make_server_identity(dt.datetime.now(dt.UTC))
    server = serve_enclave(facade, identity, "127.0.0.1:0", production=True)
    say(port=server.port)
    signal.sigwait({signal.SIGTERM})
    say(rss_mb=peak_rss_mb())
    server.stop(0)


def enclave_send(site: Path, port: str) -> None:
    plan = parse_plan((site / "plan.json").read_bytes())
    endpoint = f"127.0.0.1:{port}"
    client = EnclaveClient(
        endpoint,
        fetch_server_certificate(endpoint, 10),
        client_key_pem=(site / "key.pem").read_bytes(),
        client_certificate_pem=(site / "certificate.pem").read_bytes(),
        plan=plan.digest,
    )
    started = time.perf_counter()
    upload_artifact(client, plan, "model", site / "sealed")
    say(seconds=time.perf_counter() - started, rss_mb=peak_rss_mb())


def tls_receive(site: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(site / "certificate.pem", site / "key.pem")
    listener = socket.create_server(("127.0.0.1", 0))
    say(port=listener.getsockname()[1])
    plain, _ = listener.accept()
    buffer = bytearray(MIB)
    view = memoryview(buffer)
    offset = 0
    (site / "store").mkdir()
    with context.wrap_socket(plain, server_side=True) as secure:
        size = int.from_bytes(secure.recv(8))
        descriptor = os.open(site / "store" / "stream", os.O_WRONLY | os.O_CREAT, 0o600)
        while offset < size:
            filled = 0
            while filled < MIB and offset + filled < size:
                filled += secure.recv_into(view[filled : min(MIB, size - offset)])
            os.pwrite(descriptor, view[:filled], offset)
            offset += filled
        os.fdatasync(descriptor)
        secure.sendall(b"!")


def tls_send(site: Path, port: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.load_verify_locations(site / "certificate.pem")
    source = site / "sealed" / stream_name(1)
    size = source.stat().st_size
    descriptor = os.open(source, os.O_RDONLY)
    with context.wrap_socket(socket.create_connection(("127.0.0.1", int(port)))) as secure:
        started = time.perf_counter()
        secure.sendall(size.to_bytes(8))
        for offset in range(0, size, MIB):
            secure.sendall(os.pread(descriptor, MIB, offset))
        secure.recv(1)
        say(seconds=time.perf_counter() - started)


def _spawn(role: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, "--role", role, *arguments], stdout=subprocess.PIPE, text=True
    )


def _hear(process: subprocess.Popen[str]) -> dict[str, float]:
    assert process.stdout is not None
    heard: dict[str, float] = json.loads(process.stdout.readline())
    return heard


def _round(site: Path, receive: str, send: str) -> dict[str, float]:
    receiver = _spawn(receive, str(site))
    sender = _spawn(send, str(site), str(int(_hear(receiver)["port"])))
    figures = _hear(sender)
    sender.wait()
    if receive == "enclave-receive":
        receiver.send_signal(signal.SIGTERM)
        figures["rss_mb"] = max(figures["rss_mb"], _hear(receiver)["rss_mb"])
    receiver.wait()
    shutil.rmtree(site / "store")
    return figures


def _write_site(site: Path, size_mb: int) -> int:
    """Keys, a plan and a sealed directory of random bytes; returns ciphertext bytes."""
    sys.path.insert(0, str(ROOT))
    from tests.wire.enclaves import COMMITMENTS, certificate_pem, key_pem, make_wire_world

    world = make_wire_world()
    document = world.plan.to_json()["model"]
    plan = world.edited_plan(model={**document, "max_bytes": (size_mb + 1) * MIB})
    (site / "plan.json").write_bytes(plan.to_bytes())
    (site / "key.pem").write_bytes(key_pem(world.owner))
    (site / "certificate.pem").write_bytes(certificate_pem(world.owner))
    sealed = site / "sealed"
    sealed.mkdir()
    streams = (300, StreamLayout(size_mb * MIB).ciphertext_size)
    for stream, size in enumerate(streams):
        with (sealed / stream_name(stream)).open("wb") as file:
            for start in range(0, size, MIB):
                file.write(os.urandom(min(MIB, size - start)))
            os.fsync(file.fileno())
    index = SealedIndex("model", COMMITMENTS["model"], streams)
    (sealed / "index.json").write_bytes(index.to_bytes())
    return streams[1]


def measure_upload(directory: Path, size_mb: int) -> dict[str, float]:
    """Figures of both ways for `size_mb` MiB on the disk of `directory`.

    Keys: `upload_vs_tls` (speeds' ratio), `upload_rss_mb` (peak of the larger side),
    `upload_mb_s`, `tls_mb_s`.
    """
    ours: list[float] = []
    raw: list[float] = []
    rss: list[float] = []
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        site = Path(folder)
        size = _write_site(site, size_mb)
        for number in range(ROUNDS):
            for is_ours in (number % 2 == 0, number % 2 != 0):
                if is_ours:
                    figures = _round(site, "enclave-receive", "enclave-send")
                    ours.append(size / figures["seconds"] / 1e6)
                    rss.append(figures["rss_mb"])
                else:
                    figures = _round(site, "tls-receive", "tls-send")
                    raw.append(size / figures["seconds"] / 1e6)
    return {
        "upload_vs_tls": statistics.median(ours) / statistics.median(raw),
        "upload_rss_mb": max(rss),
        "upload_mb_s": statistics.median(ours),
        "tls_mb_s": statistics.median(raw),
    }


ROLES = {
    "enclave-receive": enclave_receive,
    "enclave-send": enclave_send,
    "tls-receive": tls_receive,
    "tls-send": tls_send,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size-mb", type=int, default=2048)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--role", choices=sorted(ROLES), help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        ROLES[options.role](Path(options.arguments[0]), *options.arguments[1:])
        return
    figures = measure_upload(options.directory, options.size_mb)
    print(f"{'figure':<16} {'value':>10}")
    for name, value in figures.items():
        print(f"{name:<16} {value:>10.2f}")
    if options.json:
        print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
