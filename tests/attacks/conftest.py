from __future__ import annotations

import enclave.wire  # noqa: F401 # isort: skip -- first: it prepares gRPC's environment

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.scene import Scene, Stage, open_stage


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("scene"))
    yield made
    made.close()


@pytest.fixture
def stage(scene: Scene, tmp_path: Path) -> Iterator[Stage]:
    with open_stage(scene, tmp_path) as opened:
        yield opened
