"""Floods: silent connections and silent calls cost a run no descriptor and a party no thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from enclave.wire import methods
from enclave.wire.transport import HANDSHAKE_SECONDS, MAX_CONNECTIONS
from enclave.workload.service.peers import MAX_LIVE_CALLS
from tests.wire.enclaves import Enclave, WireWorld, outcome
from tests.wire.test_server import raw_channel

_FLOOD = """
import socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
held = []
for _ in range(count):
    try:
        held.append(socket.create_connection((host, port), 1))
    except OSError:
        break
print(len(held), flush=True)
sys.stdin.read()
"""


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_strangers_can_not_take_every_descriptor(
    enclave_server: Enclave, wire_world: WireWorld
) -> None:
    host, port = enclave_server.endpoint.split(":")
    before = open_descriptors()
    wanted = 3 * MAX_CONNECTIONS
    flood = subprocess.Popen(
        [sys.executable, "-c", _FLOOD, host, port, str(wanted)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert flood.stdout is not None
        flood.stdout.readline()
        highest, until = 0, time.monotonic() + 2
        while time.monotonic() < until:
            highest = max(highest, open_descriptors())
            time.sleep(0.05)
        assert highest - before <= MAX_CONNECTIONS + 16
        # Silent connections are closed; then there is room for a party again.
        until = time.monotonic() + HANDSHAKE_SECONDS + 10
        while open_descriptors() - before > MAX_CONNECTIONS // 2 and time.monotonic() < until:
            time.sleep(0.1)
        with enclave_server.client(wire_world.owner) as owner:
            assert outcome(owner.get_session) == "ok"
    finally:
        flood.kill()
        flood.communicate()


@pytest.mark.parametrize(
    "path", [methods.ATTEST.path, methods.WATCH_RUN.path, "/grpc.health.v1.Health/Check"]
)
def test_silent_calls_can_not_hold_every_thread(
    enclave_server: Enclave, wire_world: WireWorld, path: str
) -> None:
    """Headers alone: gRPC would wait for a unary call's message before it asks who calls."""
    ended = threading.Event()

    def say_nothing() -> Iterator[bytes]:
        ended.wait(60)
        yield from ()

    with (
        raw_channel(enclave_server, wire_world.auditor) as channel,
        enclave_server.client(wire_world.owner) as other,
    ):
        silent = [channel.stream_unary(path).future(say_nothing(), timeout=60) for _ in range(32)]
        until = time.monotonic() + 10
        while sum(call.done() for call in silent) < 32 - MAX_LIVE_CALLS:
            assert time.monotonic() < until, "silent calls wait on the threads of all"
            time.sleep(0.05)
        assert outcome(other.start_run) == "ok"
        ended.set()
