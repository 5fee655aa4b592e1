"""kill -9 of either side in the middle of an upload, and a disk that fills up."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from enclave.clients.channel.client import EnclaveClient
from enclave.clients.channel.upload import upload_artifact
from enclave.core.sealed.stream import SEGMENT_BYTES
from enclave.workload.service.upload_store import open_upload_store
from tests.core.builders import expect_refusal
from tests.wire.enclaves import Enclave, WireWorld, write_sealed_directory
from tests.wire.upload_processes import Site

MIB = SEGMENT_BYTES
STREAMS = [300, 150 * MIB + 50, 9 * MIB]
TOTAL = 1 + 151 + 9


@pytest.fixture
def site(tmp_path: Path, wire_world: WireWorld) -> Site:
    write_sealed_directory(tmp_path / "sealed", "model", STREAMS)
    site = Site(tmp_path, wire_world)
    site.write(wire_world.owner)
    return site


def missing_in(store: Path, world: WireWorld) -> int:
    """What the store believes with no process running."""
    opened = open_upload_store(store, world.plan, "model")
    try:
        return opened.status().missing_segments
    finally:
        opened.close()


def assert_equal(store: Path, site: Site) -> None:
    opened = open_upload_store(store, site.world.plan, "model")
    with opened.open_source() as source:
        for stream in range(len(STREAMS)):
            name = f"{stream:08d}.sealed"
            with open(source.descriptor(stream), "rb", closefd=False) as stored:
                assert stored.read() == (site.root / "sealed" / name).read_bytes()
    opened.close()


@pytest.mark.slow
def test_server_killed(site: Site) -> None:
    store = site.root / "store"
    server, endpoint = site.spawn_server(store)
    client = site.spawn_client(endpoint, site.root / "sealed")
    while client.hear_until("durable")["durable"] < 30 * MIB:
        pass
    server.kill()
    assert client.hear_until("code")["code"] == "enclave_unreachable"
    client.kill()
    missing = missing_in(store, site.world)
    assert 0 < missing < TOTAL - 29
    server, endpoint = site.spawn_server(store)
    client = site.spawn_client(endpoint, site.root / "sealed")
    heard = client.hear_until("sent")
    assert heard == {"sent": missing, "skipped": TOTAL - missing}
    client.kill()
    server.kill()
    assert_equal(store, site)


def test_client_killed(site: Site) -> None:
    store = site.root / "store"
    server, endpoint = site.spawn_server(store)
    client = site.spawn_client(endpoint, site.root / "sealed")
    while client.hear_until("durable")["durable"] < 30 * MIB:
        pass
    client.kill()
    client = site.spawn_client(endpoint, site.root / "sealed")
    heard = client.hear_until("sent")
    assert heard["sent"] + heard["skipped"] == TOTAL
    assert 30 <= heard["skipped"] < TOTAL
    assert client.hear_until("peak_rss_mb")["peak_rss_mb"] < 160
    client.kill()
    server.kill()
    assert_equal(store, site)


@pytest.mark.slow
def test_random_kills_lose_nothing(site: Site) -> None:
    """Whatever was acknowledged before a kill is there after it, untorn."""
    store = site.root / "store"
    moments = random.Random(7)
    acknowledged = 0
    for _ in range(8):
        server, endpoint = site.spawn_server(store)
        client = site.spawn_client(endpoint, site.root / "sealed")
        heard = client.hear_until("durable")
        assert heard["durable"] >= acknowledged
        deadline = time.monotonic() + moments.uniform(0.0, 0.25)
        while time.monotonic() < deadline and "durable" in heard:
            acknowledged = max(acknowledged, heard["durable"])
            heard = client.hear()
        for victim in moments.sample([server, client], 2):
            victim.kill()
    server, endpoint = site.spawn_server(store)
    client = site.spawn_client(endpoint, site.root / "sealed")
    assert client.hear_until("durable")["durable"] >= acknowledged
    client.hear_until("sent")
    client.kill()
    server.kill()
    assert_equal(store, site)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 24 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], check=True, timeout=10
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=10)


@pytest.mark.root
def test_disk_too_small_is_told_at_once(
    small_disk: Path, wire_world: WireWorld, tmp_path: Path
) -> None:
    write_sealed_directory(tmp_path / "sealed", "model", [300, 30 * MIB])
    with (
        Enclave(wire_world, small_disk / "store") as enclave,
        enclave.client(wire_world.owner) as client,
    ):
        refusal = expect_refusal(
            "upload_disk_full",
            lambda: upload_artifact(client, wire_world.plan, "model", tmp_path / "sealed"),
        )
        assert "bytes free" in refusal.got
        assert "free space" in refusal.hint
        assert client.get_upload_status("model").missing_segments == 31


@pytest.mark.root
def test_disk_fills_up_during_an_upload(
    small_disk: Path, wire_world: WireWorld, tmp_path: Path
) -> None:
    """Typed, nothing corrupted, and taken up again once there is room."""
    write_sealed_directory(tmp_path / "sealed", "model", [300, 20 * MIB])
    ballast = small_disk / "ballast"
    with (
        Enclave(wire_world, small_disk / "store") as enclave,
        enclave.client(wire_world.owner) as client,
    ):
        upload = upload_then_fill(client, wire_world, tmp_path / "sealed", ballast)
        refusal = expect_refusal("upload_disk_full", upload)
        assert refusal.stage == "upload"
        status = client.get_upload_status("model")
        assert 0 < status.missing_segments < 21
        ballast.unlink()
        report = upload_artifact(client, wire_world.plan, "model", tmp_path / "sealed")
        assert report.sent_segments == status.missing_segments
        assert report.skipped_segments == 21 - status.missing_segments
        store = enclave.facade.upload_store(wire_world.plan.digest, "model")
        with store.open_source() as source:
            for stream, name in enumerate(("00000000.sealed", "00000001.sealed")):
                with open(source.descriptor(stream), "rb", closefd=False) as stored:
                    assert stored.read() == (tmp_path / "sealed" / name).read_bytes()


def upload_then_fill(client: EnclaveClient, world: WireWorld, sealed: Path, ballast: Path):
    """An upload during which somebody else takes 10 MiB of the disk."""

    def fill(_done: int, _total: int) -> None:
        if not ballast.exists():
            with ballast.open("wb") as file:
                file.write(bytes(10 * MIB))

    return lambda: upload_artifact(client, world.plan, "model", sealed, fill)
