"""Evaluations prepared once a module: making keys and sealing is not what is tested here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.model.tiny import write_tiny_model

AS_ROOT = os.geteuid() == 0


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "model")
