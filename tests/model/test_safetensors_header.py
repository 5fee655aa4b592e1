"""Attacks on the weights' header, each with its own code."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from enclave.core.errors import ModelRefused
from enclave.workload.model_host.safetensors_header import (
    MAX_HEADER_BYTES,
    MAX_TENSORS,
    Header,
    read_header,
)


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def build(header: Any, data: int = 16, text: str | None = None) -> bytes:
    raw = (json.dumps(header) if text is None else text).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw + bytes(data)


def read(blob: bytes, size: int | None = None) -> Header:
    return read_header(
        lambda count, offset: blob[offset : offset + count], len(blob) if size is None else size
    )


GOOD = {"a": entry(), "b": entry(offsets=(8, 16))}

ATTACKS: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty file": (lambda: b"", "safetensors_truncated"),
    "shorter than its prefix": (lambda: b"\x10\0\0\0", "safetensors_truncated"),
    "header bomb": (lambda: struct.pack("<Q", 2**63) + bytes(64), "safetensors_header_size"),
    "header over the cap": (
        lambda: struct.pack("<Q", MAX_HEADER_BYTES + 1) + bytes(64),
        "safetensors_header_size",
    ),
    "header of no bytes": (lambda: struct.pack("<Q", 0) + bytes(64), "safetensors_header_size"),
    "header longer than the file": (
        lambda: struct.pack("<Q", 4096) + b"{}",
        "safetensors_truncated",
    ),
    "not JSON": (lambda: build(None, text="{nonsense"), "safetensors_header_json"),
    "space in front": (lambda: build(None, text=' {"a":1}'), "safetensors_header_json"),
    "array": (lambda: build([]), "safetensors_header_json"),
    "nested too deep": (
        lambda: build(None, text='{"a":' + "[" * 100_000 + "]" * 100_000 + "}"),
        "safetensors_header_json",
    ),
    "not UTF-8": (
        lambda: struct.pack("<Q", 8) + b'{"\xff":1}' + bytes(8),
        "safetensors_header_json",
    ),
    "trailing second object": (lambda: build(None, text="{}{}"), "safetensors_header_json"),
    "NaN": (lambda: build(None, text='{"a":NaN}'), "safetensors_header_json"),
    "float offset": (
        lambda: build({"a": entry(offsets=(0, 8.0))}),
        "safetensors_header_json",
    ),
    "no tensors": (lambda: build({}), "safetensors_tensor_count"),
    "too many tensors": (
        lambda: build({str(i): entry(shape=(0,), offsets=(0, 0)) for i in range(MAX_TENSORS + 1)}),
        "safetensors_tensor_count",
    ),
    "duplicate name": (
        lambda: build(None, text='{"a":%s,"a":%s}' % ((json.dumps(entry()),) * 2)),
        "safetensors_duplicate",
    ),
    "duplicate key in an entry": (
        lambda: build(None, text='{"a":{"dtype":"F32","dtype":"F64"}}'),
        "safetensors_duplicate",
    ),
    "metadata not strings": (
        lambda: build({**GOOD, "__metadata__": {"n": 1}}),
        "safetensors_metadata",
    ),
    "metadata not an object": (
        lambda: build({**GOOD, "__metadata__": "x"}),
        "safetensors_metadata",
    ),
    "unknown dtype": (lambda: build({"a": entry("F8_E4M3")}, 8), "safetensors_dtype"),
    "dtype not text": (lambda: build({"a": entry(["F32"])}, 8), "safetensors_dtype"),
    "shape overflow": (
        lambda: build({"a": entry(shape=(2**32, 2**32), offsets=(0, 0))}, 0),
        "safetensors_shape",
    ),
    "overflow hidden by a zero": (
        lambda: build({"a": entry(shape=(2**31, 2**31, 0), offsets=(0, 0))}, 0),
        "safetensors_shape",
    ),
    "integer of many digits": (
        lambda: build(None, text='{"a":{"dtype":"F32","shape":[%s]}}' % ("9" * 5000)),
        "safetensors_shape",
    ),
    "negative dimension": (lambda: build({"a": entry(shape=(-2,))}, 8), "safetensors_shape"),
    "boolean dimension": (lambda: build({"a": entry(shape=(True, 2))}, 8), "safetensors_shape"),
    "too many dimensions": (
        lambda: build({"a": entry(shape=(1,) * 9, offsets=(0, 4))}, 4),
        "safetensors_shape",
    ),
    "shape and span differ": (lambda: build({"a": entry(shape=(3,))}, 8), "safetensors_shape"),
    "negative offset": (lambda: build({"a": entry(offsets=(-8, 0))}, 8), "safetensors_offsets"),
    "offsets backwards": (lambda: build({"a": entry(offsets=(8, 0))}, 8), "safetensors_offsets"),
    "one offset": (lambda: build({"a": entry(offsets=(8,))}, 8), "safetensors_offsets"),
    "overlapping tensors": (
        lambda: build({"a": entry(), "b": entry(offsets=(4, 12))}, 12),
        "safetensors_overlap",
    ),
    "the same span twice": (
        lambda: build({"a": entry(), "b": entry()}, 8),
        "safetensors_overlap",
    ),
    "hole at the start": (lambda: build({"a": entry(offsets=(8, 16))}), "safetensors_hole"),
    "hole between": (
        lambda: build({"a": entry(), "b": entry(offsets=(16, 24))}, 24),
        "safetensors_hole",
    ),
    "data cut off": (lambda: build(GOOD, 15), "safetensors_truncated"),
    "data left over": (lambda: build(GOOD, 17), "safetensors_trailing"),
    "extra key": (lambda: build({"a": {**entry(), "x": 1}}, 8), "safetensors_entry"),
    "missing key": (lambda: build({"a": {"dtype": "F32"}}, 8), "safetensors_entry"),
    "name too long": (lambda: build({"n" * 513: entry()}, 8), "safetensors_name"),
    "control character in a name": (lambda: build({"a\n": entry()}, 8), "safetensors_name"),
    "misaligned": (
        lambda: build({"a": entry("U8", (1,), (0, 1)), "b": entry("F32", (1,), (1, 5))}, 5),
        "safetensors_alignment",
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_has_its_code(name: str) -> None:
    make, code = ATTACKS[name]
    with pytest.raises(ModelRefused) as refused:
        read(make())
    assert refused.value.code == code


def test_at_least_forty_attacks() -> None:
    assert len(ATTACKS) >= 40


def test_refusals_carry_no_name_of_the_header() -> None:
    with pytest.raises(ModelRefused) as refused:
        read(build({"CANARY": entry("NOPE")}, 8))
    assert "CANARY" not in str(refused.value)
    assert "NOPE" not in str(refused.value)


def test_reads_what_safetensors_writes(tmp_path: Path) -> None:
    tensors = {
        "half": torch.ones(3, 5, dtype=torch.bfloat16),
        "whole": torch.arange(7, dtype=torch.int64),
        "flags": torch.tensor([True, False]),
        "empty": torch.zeros(0, 4),
        "scalar": torch.tensor(3.0),
    }
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    blob = path.read_bytes()
    header = read(blob)
    assert {e.name: e.shape for e in header.tensors} == {
        name: tuple(tensor.shape) for name, tensor in tensors.items()
    }
    whole = next(e for e in header.tensors if e.name == "whole")
    assert blob[whole.begin : whole.end] == tensors["whole"].numpy().tobytes()


@settings(max_examples=300, deadline=None)
@given(position=st.integers(0, 160), value=st.integers(0, 255))
def test_what_is_accepted_the_library_accepts(position: int, value: int) -> None:
    blob = bytearray(build({**GOOD, "__metadata__": {"k": "v"}}))
    blob[position % len(blob)] = value
    try:
        header = read(bytes(blob))
    except ModelRefused:
        return
    loaded = safetensors.torch.load(bytes(blob))
    assert {e.name: list(e.shape) for e in header.tensors} == {
        name: list(tensor.shape) for name, tensor in loaded.items()
    }
