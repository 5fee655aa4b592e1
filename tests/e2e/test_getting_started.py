"""docs/getting-started.md, command by command; only the model is smaller."""

from __future__ import annotations

import socket
from collections import Counter
from pathlib import Path

import pytest

from enclave.cli.demo_assets.model import MODEL_FILES
from tests.e2e.guide import MACHINES, Guide, read_blocks
from tests.model.tiny import write_tiny_model

pytestmark = pytest.mark.slow
_MODEL = "models/smollm2-135m-instruct-fp32-v1"


def test_blocks_are_found() -> None:
    blocks = read_blocks()
    assert Counter(block.machine for block in blocks).keys() == set(MACHINES)
    assert Counter(block.kind for block in blocks) == {
        "run": len(blocks) - 2,
        "serve": 1,
        "refused": 1,
    }
    assert len(blocks) >= 20


def test_the_whole_guide(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    guide = Guide(tmp_path, address, address, prefix={})
    model = write_tiny_model(tmp_path / "alice" / _MODEL, max_position_embeddings=2048)
    assert all((model / name).is_file() for name in MODEL_FILES)
    told = ""
    try:
        for block in read_blocks():
            told += guide.run(block)
    finally:
        guide.stop()
    assert told.count("Run 2 of A first evaluation") == 1
    for machine in MACHINES:
        receipts = sorted((tmp_path / machine).glob("*/receipts/*/run-*/receipt.json"))
        assert receipts, machine
