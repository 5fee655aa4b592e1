"""The vectors of docs/spec/wire.md, and that the page names every code of its rooms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from enclave.core.errors import Refusal
from enclave.wire.codec_upload import parse_segment
from enclave.workload.service.journal import open_journal
from tests.clients.codes import literal_codes

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "wire"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "spec" / "wire.md"


def load(name: str) -> list[dict[str, Any]]:
    vectors: list[dict[str, Any]] = json.loads((VECTORS / name).read_text())
    return vectors


SEGMENTS, JOURNALS = load("segments.json"), load("journals.json")


def test_vectors_are_found() -> None:
    assert len(SEGMENTS) >= 14
    assert len(JOURNALS) >= 13


@pytest.mark.parametrize("vector", SEGMENTS, ids=lambda v: v["name"])
def test_segment(vector: dict[str, Any]) -> None:
    message = bytes.fromhex(vector["message"])
    if vector["refusal"]:
        with pytest.raises(Refusal) as caught:
            parse_segment(message)
        assert caught.value.code == vector["refusal"]
    else:
        stream, segment, ciphertext = parse_segment(message)
        assert (stream, segment) == (vector["stream"], vector["segment"])
        assert ciphertext.hex() == vector["ciphertext"]


@pytest.mark.parametrize("vector", JOURNALS, ids=lambda v: v["name"])
def test_journal(vector: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(bytes.fromhex(vector["journal"]))
    journal, entries = open_journal(tmp_path / "journal", bytes.fromhex(vector["index_sha256"]))
    journal.close()
    assert [
        {
            "durable": entry.durable,
            "stream": entry.run.stream,
            "first": entry.run.first,
            "count": entry.run.count,
        }
        for entry in entries
    ] == vector["records"]


def test_page_names_every_code() -> None:
    rooms = ("enclave/wire", "enclave/workload/service", "enclave/clients/channel")
    codes = literal_codes(*rooms)
    assert len(codes) >= 30
    page = PAGE.read_text()
    assert [code for code in sorted(codes) if f"`{code}`" not in page] == []
