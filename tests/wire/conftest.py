from __future__ import annotations

import enclave.wire  # noqa: F401 # isort: skip -- first: it prepares gRPC's environment

from collections.abc import Iterator
from pathlib import Path

import pytest

from enclave.clients.channel.client import EnclaveClient
from tests.wire.enclaves import Enclave, WireWorld, make_wire_world


@pytest.fixture(scope="session")
def wire_world() -> WireWorld:
    return make_wire_world()


@pytest.fixture
def enclave_server(wire_world: WireWorld, tmp_path: Path) -> Iterator[Enclave]:
    with Enclave(wire_world, tmp_path / "store") as running:
        yield running


@pytest.fixture
def owner(enclave_server: Enclave, wire_world: WireWorld) -> Iterator[EnclaveClient]:
    with enclave_server.client(wire_world.owner) as client:
        yield client
