"""RFC 8785 (JCS) documents: one spelling a value.

`parse_canonical` accepts exactly the bytes that `print_canonical` writes.
Floats, duplicate keys and integers beyond 2**53 - 1 do not exist here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import rfc8785

from enclave.core.errors import DocumentRefused

MAX_DOCUMENT_BYTES = 4 * 1024 * 1024
MAX_SAFE_INTEGER = 2**53 - 1
_MAX_DEPTH = 32


def _refuse_float(_text: str) -> Any:
    raise DocumentRefused("document_float", expected="integer or decimal string", got="float")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise DocumentRefused("document_duplicate_key", expected="each key once")
    return fields


def _parse_integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > MAX_SAFE_INTEGER:
        raise DocumentRefused("document_integer_range", expected="|n| < 2**53")
    return int(text)


def _refuse_depth(value: Any, depth: int = 0) -> None:
    if depth > _MAX_DEPTH:
        raise DocumentRefused("document_too_deep", expected=f"depth at most {_MAX_DEPTH}")
    children: Iterable[Any] = ()
    if isinstance(value, dict):
        children = value.values()
    elif isinstance(value, list):
        children = value
    for child in children:
        _refuse_depth(child, depth + 1)


def parse_json_object(data: bytes, *, max_bytes: int = MAX_DOCUMENT_BYTES) -> dict[str, Any]:
    """Parse a JSON object strictly; whitespace and key order are free."""
    if len(data) > max_bytes:
        raise DocumentRefused(
            "document_too_large", expected=f"at most {max_bytes} bytes", got=f"{len(data)} bytes"
        )
    try:
        value = json.loads(
            data.decode("utf-8", "strict"),
            parse_float=_refuse_float,
            parse_int=_parse_integer,
            parse_constant=_refuse_float,
            object_pairs_hook=_refuse_duplicates,
        )
        if not isinstance(value, dict):
            raise DocumentRefused("document_not_object", expected="a JSON object")
        _refuse_depth(value)
    except DocumentRefused:
        raise
    except (ValueError, RecursionError):
        raise DocumentRefused("document_not_json", expected="UTF-8 JSON") from None
    return value


def print_canonical(value: Mapping[str, Any]) -> bytes:
    """The RFC 8785 bytes of a JSON object."""
    try:
        return rfc8785.dumps(dict(value))
    except (rfc8785.CanonicalizationError, RecursionError):
        raise DocumentRefused("document_not_canonical", expected="RFC 8785 values") from None


def parse_canonical(data: bytes, *, max_bytes: int = MAX_DOCUMENT_BYTES) -> dict[str, Any]:
    """Parse bytes that must already be canonical; anything else is refused."""
    value = parse_json_object(data, max_bytes=max_bytes)
    if print_canonical(value) != data:
        raise DocumentRefused("document_not_canonical", expected="RFC 8785 bytes")
    return value


def digest_bytes(data: bytes) -> str:
    """SHA-256 as 64 lower hex digits."""
    return hashlib.sha256(data).hexdigest()
