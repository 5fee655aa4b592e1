"""The committed vectors, run and counted; and the spec page against the code."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import tink

from enclave.core.canonical import digest_bytes
from enclave.core.errors import Refusal
from enclave.core.sealed import compute_commitment, parse_index, parse_manifest, verify_commitment
from enclave.core.sealed.stream import make_header
from tests.sealed.artifacts import open_stream, seal_stream
from tests.sealed.test_stream import associated_data, tink_primitive
from tests.sealed.vector_writer import PATH, plaintext_of, write

ROOT = Path(__file__).parents[2]
VECTORS: dict[str, Any] = json.loads(PATH.read_bytes())


def cases(kind: str) -> Any:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


def outcome(action: Any) -> str:
    try:
        action()
    except Refusal as refusal:
        return refusal.code
    return ""


def test_vectors_are_found_and_are_what_the_writer_writes() -> None:
    counts = {kind: len(VECTORS[kind]) for kind in VECTORS if kind != "page"}
    assert counts["streams"] >= 18
    assert counts["commitments"] >= 6
    assert counts["manifests"] >= 80
    assert counts["indexes"] >= 14
    assert PATH.read_bytes() == write()


@cases("streams")
def test_stream(case: dict[str, Any]) -> None:
    key, plaintext = bytes.fromhex(case["key"]), plaintext_of(case["size"])
    if "error" not in case:
        header = make_header(bytes.fromhex(case["salt"]), bytes.fromhex(case["prefix"]))
        ciphertext = seal_stream(key, case["stream"], plaintext, header)
        assert ciphertext.hex() == case.get("ciphertext", ciphertext.hex())
        assert digest_bytes(ciphertext) == case["ciphertext_sha256"]
        assert open_stream(key, case["stream"], ciphertext) == plaintext
        opened = tink_primitive(key).new_decrypting_stream(
            io.BytesIO(ciphertext), associated_data(case["stream"])
        )
        assert opened.read() == plaintext
        return
    damaged = bytearray.fromhex(case["ciphertext"])
    if "flip" in case:
        damaged[case["flip"]] ^= 1
    assert outcome(lambda: open_stream(key, case["stream"], bytes(damaged))) == case["error"]
    with pytest.raises(tink.TinkError):
        tink_primitive(key).new_decrypting_stream(
            io.BytesIO(damaged), associated_data(case["stream"])
        ).read()


@cases("commitments")
def test_commitment(case: dict[str, Any]) -> None:
    salt, digest = bytes.fromhex(case["salt"]), case["manifest_sha256"]
    found = outcome(lambda: verify_commitment(case["artifact"], salt, digest, case["commitment"]))
    assert found == case.get("error", "")
    computed = compute_commitment(case["artifact"], salt, digest)
    assert (computed == case["commitment"]) == ("error" not in case)


@cases("manifests")
def test_manifest(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["manifest"])
    found = outcome(lambda: parse_manifest(data, case["max_bytes"], case["max_files"]))
    assert found == case.get("error", "")


@cases("indexes")
def test_index(case: dict[str, Any]) -> None:
    assert outcome(lambda: parse_index(bytes.fromhex(case["index"]))) == case.get("error", "")


STEMS = (
    "artifact|commitment|destination|file|index|manifest|memory|model|segment|source|stream|wipe"
)
CODE = re.compile(rf"(?:{STEMS})_[a-z]+(?:_[a-z]+)*")
SOURCES = (
    *(ROOT / "enclave/core/sealed").glob("*.py"),
    *(ROOT / "enclave/workload/memory").glob("*.py"),
    *(
        ROOT / name
        for name in (
            "enclave/clients/party/sealing.py",
            "enclave/clients/party/sealed_output.py",
            "enclave/clients/party/source_folder.py",
            "enclave/workload/opening.py",
            "enclave/workload/opening_streams.py",
            "enclave/workload/segment_source.py",
        )
    ),
)


def test_page_code_and_tests_name_the_same_refusals() -> None:
    source = "".join(path.read_text() for path in SOURCES)
    page = (ROOT / "docs/spec/sealed-artifact.md").read_text()
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    in_source = {word for word in re.findall(r'"([a-z_]+)"', source) if CODE.fullmatch(word)}
    on_page = {word for word in re.findall(r"`([a-z_]+)`", page) if CODE.fullmatch(word)}
    assert len(in_source) >= 35
    assert in_source == on_page
    # Both need a failing disk or kernel under an open descriptor.
    hard_to_reach = {"memory_failed", "stream_unreadable", "source_unreadable"}
    assert {code for code in in_source if f'"{code}"' not in tests} <= hard_to_reach
    for path in re.findall(r"`((?:enclave|tests)/[\w/.-]+)`", page):
        assert (ROOT / path).exists(), path
