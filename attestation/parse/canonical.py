"""A small strict reader of RFC 8785 (JCS) documents: one spelling a value.

Floats, duplicate keys, integers beyond 2**53 - 1, lone surrogates and deep
nesting do not exist here. Every failure is the error class of the caller's
stage, never a foreign exception.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import rfc8785

from attestation.errors import AttestationError, Finding

MAX_SAFE_INTEGER = 2**53 - 1
_MAX_DEPTH = 12


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """How a kind of document is called when it is refused.

    `error`: the class raised; `prefix`: the beginning of its codes; `check`:
    the name of the check that then failed.
    """

    error: type[AttestationError]
    prefix: str
    check: str

    def refuse(self, code: str, field: str, expected: str, got: str = "") -> AttestationError:
        """Build the error for one malformed field."""
        name = f"{self.prefix}_{code}"
        return self.error(name, [Finding(self.check, field, expected, got[:80], name)])


class _NotStrict(Exception):
    """Raised inside the JSON reader's hooks, where the document's kind is not known."""


def _refuse_number(_text: str) -> Any:
    raise _NotStrict("integer, no fraction and no exponent")


def _parse_integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > MAX_SAFE_INTEGER:
        raise _NotStrict("|n| < 2**53")
    return int(text)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _NotStrict("each key once")
    return fields


def _refuse_depth(value: Any, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise _NotStrict(f"depth at most {_MAX_DEPTH}")
    children: Iterable[Any] = ()
    if isinstance(value, dict):
        children = value.values()
    elif isinstance(value, list):
        children = value
    for child in children:
        _refuse_depth(child, depth + 1)


def parse_object(data: bytes, *, kind: DocumentKind, max_bytes: int) -> dict[str, Any]:
    """Parse a JSON object strictly; only whitespace and the order of keys are free."""
    if len(data) > max_bytes:
        raise kind.refuse("size", "document", f"at most {max_bytes} bytes", f"{len(data)} bytes")
    try:
        value = json.loads(
            data.decode("utf-8", "strict"),
            parse_float=_refuse_number,
            parse_int=_parse_integer,
            parse_constant=_refuse_number,
            object_pairs_hook=_refuse_duplicates,
        )
        _refuse_depth(value, 0)
    except _NotStrict as refusal:
        raise kind.refuse("not_strict", "document", str(refusal)) from None
    except (ValueError, RecursionError):
        raise kind.refuse("not_json", "document", "UTF-8 JSON") from None
    if not isinstance(value, dict):
        raise kind.refuse("not_object", "document", "a JSON object", type(value).__name__)
    return value


def print_canonical(value: dict[str, Any], *, kind: DocumentKind) -> bytes:
    """The RFC 8785 bytes of a JSON object."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeError, RecursionError):
        raise kind.refuse("not_canonical", "document", "RFC 8785 values") from None


def parse_canonical(data: bytes, *, kind: DocumentKind, max_bytes: int) -> dict[str, Any]:
    """Parse bytes that must already be canonical; any other spelling is refused."""
    value = parse_object(data, kind=kind, max_bytes=max_bytes)
    if print_canonical(value, kind=kind) != data:
        raise kind.refuse("not_canonical", "document", "RFC 8785 bytes", "another spelling")
    return value
