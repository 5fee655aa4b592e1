"""A strict reader of safetensors headers (docs/spec/model-host.md, "Weights").

The file is: u64 little-endian N, N bytes of JSON, then the tensor data.  The
header is judged as a whole before anything uses it: every byte of the data
belongs to exactly one tensor, and every tensor's span is its shape's size.
Codes are the names in the specification's table.  No name or value of the
header enters a refusal: they are the model owner's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from enclave.core.errors import ModelRefused

MAX_HEADER_BYTES = 16 * 1024 * 1024
MAX_TENSORS = 100_000
MAX_DIMENSIONS = 8
MAX_NAME_LENGTH = 512
_MAX_OFFSET = 2**48
_LENGTH_BYTES = 8

ITEM_BYTES: Mapping[str, int] = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}
"""The element types that may be in a file, and their sizes in bytes."""


@dataclass(frozen=True)
class TensorEntry:
    """One tensor: `begin` and `end` count bytes from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """A header that was judged: entries in the order of their data."""

    tensors: tuple[TensorEntry, ...]
    data_start: int
    file_size: int


def read_header(read: Callable[[int, int], bytes], file_size: int) -> Header:
    """Read and judge the header of a file of `file_size` bytes.

    `read(size, offset)` returns exactly that part of the file.
    """
    if file_size < _LENGTH_BYTES + 2:
        raise ModelRefused("safetensors_truncated", got=f"{file_size} bytes")
    prefix = read(_LENGTH_BYTES, 0)
    if len(prefix) != _LENGTH_BYTES:
        raise ModelRefused("safetensors_truncated")
    length = int.from_bytes(prefix, "little")
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise ModelRefused(
            "safetensors_header_size", expected=f"2 to {MAX_HEADER_BYTES} bytes", got=str(length)
        )
    if _LENGTH_BYTES + length > file_size:
        raise ModelRefused("safetensors_truncated", expected=f"a header of {length} bytes")
    text = read(length, _LENGTH_BYTES)
    if len(text) != length:
        raise ModelRefused("safetensors_truncated")
    return judge_header(text, file_size)


def judge_header(text: bytes, file_size: int) -> Header:
    """Judge the JSON part of a header against the size of the whole file."""
    fields = _parse_json(text)
    _refuse_metadata(fields.pop("__metadata__", {}))
    if not 1 <= len(fields) <= MAX_TENSORS:
        raise ModelRefused("safetensors_tensor_count", expected=f"1 to {MAX_TENSORS}")
    data_start = _LENGTH_BYTES + len(text)
    entries = [_read_entry(name, value, data_start) for name, value in fields.items()]
    entries.sort(key=lambda entry: (entry.begin, entry.end))
    position = data_start
    for entry in entries:
        if entry.begin < position:
            raise ModelRefused("safetensors_overlap", expected="tensors side by side")
        if entry.begin > position:
            raise ModelRefused("safetensors_hole", expected="tensors side by side")
        position = entry.end
    if position > file_size:
        raise ModelRefused("safetensors_truncated", expected=f"{position} bytes")
    if position < file_size:
        raise ModelRefused("safetensors_trailing", expected=f"{position} bytes")
    return Header(tuple(entries), data_start, file_size)


def _parse_json(text: bytes) -> dict[str, Any]:
    # The format allows trailing spaces (alignment) and nothing in front.
    if text[:1] != b"{":
        raise ModelRefused("safetensors_header_json", expected="a JSON object")
    try:
        value = json.loads(
            text.decode("utf-8", "strict").rstrip(" "),
            object_pairs_hook=_distinct,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
            parse_int=_parse_integer,
        )
    except (ValueError, RecursionError):
        raise ModelRefused("safetensors_header_json", expected="UTF-8 JSON") from None
    if not isinstance(value, dict):
        raise ModelRefused("safetensors_header_json", expected="a JSON object")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ModelRefused("safetensors_duplicate", expected="each name once")
    return fields


def _refuse_number(_text: str) -> Any:
    raise ModelRefused("safetensors_header_json", expected="integers only")


def _parse_integer(text: str) -> int:
    if len(text) > 15:
        raise ModelRefused("safetensors_shape", expected=f"integers below {_MAX_OFFSET}")
    return int(text)


def _refuse_metadata(value: Any) -> None:
    if not isinstance(value, dict) or not all(isinstance(entry, str) for entry in value.values()):
        raise ModelRefused("safetensors_metadata", expected="an object of strings")


def _read_entry(name: str, value: Any, data_start: int) -> TensorEntry:
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise ModelRefused("safetensors_name", expected="1 to 512 printable characters")
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise ModelRefused("safetensors_entry", expected="dtype, shape, data_offsets")
    dtype = value["dtype"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise ModelRefused("safetensors_dtype", expected=", ".join(ITEM_BYTES))
    shape = _integers(value["shape"], "safetensors_shape")
    if len(shape) > MAX_DIMENSIONS:
        raise ModelRefused("safetensors_shape", expected=f"at most {MAX_DIMENSIONS} dimensions")
    offsets = _integers(value["data_offsets"], "safetensors_offsets")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ModelRefused("safetensors_offsets", expected="begin and end, in order")
    size = ITEM_BYTES[dtype]
    for dimension in shape:
        size *= dimension
        # Judged a step at a time: a later zero must not hide an overflow.
        if size > _MAX_OFFSET:
            raise ModelRefused("safetensors_shape", expected=f"at most {_MAX_OFFSET} bytes")
    if size != offsets[1] - offsets[0]:
        raise ModelRefused("safetensors_shape", expected="data as large as the shape says")
    begin = data_start + offsets[0]
    if begin % ITEM_BYTES[dtype]:
        raise ModelRefused(
            "safetensors_alignment",
            expected="data aligned to its element type",
            hint="save again with safetensors 0.3 or later",
        )
    return TensorEntry(name, dtype, tuple(shape), begin, data_start + offsets[1])


def _integers(value: Any, code: str) -> list[int]:
    if not isinstance(value, list) or not all(
        isinstance(entry, int) and not isinstance(entry, bool) and 0 <= entry <= _MAX_OFFSET
        for entry in value
    ):
        raise ModelRefused(code, expected=f"integers from 0 to {_MAX_OFFSET}")
    return value
