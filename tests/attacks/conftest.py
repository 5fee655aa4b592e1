from __future__ import annotations

import enclave.wire  # noqa: F401 # isort: skip -- first: it prepares gRPC's environment

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.attacks.scene import Scene, Stage, open_stage

_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A folder in memory where there is one: the parties and the workload sync every file."""
    memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix="attacks-", dir=memory) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def scene(place: Path) -> Iterator[Scene]:
    made = Scene(place / "scene")
    yield made
    made.close()


@pytest.fixture
def stage(scene: Scene, place: Path) -> Iterator[Stage]:
    with TemporaryDirectory(dir=place) as folder, open_stage(scene, Path(folder)) as opened:
        yield opened
