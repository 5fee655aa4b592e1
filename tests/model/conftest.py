"""One tiny model, served once for the whole room."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is loaded: before it

from tests.model.host_process import served
from tests.model.tiny import write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def tiny_url(tiny_model: Path) -> Iterator[str]:
    with served(tiny_model) as (_, url):
        yield url
