"""Readers for closed documents: each field present, typed and bounded, no other field there.

Rules of a policy are three-valued: a value, or the word `unconstrained` that
somebody typed. A missing field is never a value.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal, cast

from attestation.errors import AttestationError
from attestation.parse.canonical import DocumentKind
from attestation.parse.times import parse_time

Unconstrained = Literal["unconstrained"]
Switch = Literal["on", "off", "unconstrained"]
"""A flag's rule: it must be set, it must not be set, or somebody wrote that it may be either."""

UNCONSTRAINED: Unconstrained = "unconstrained"

_HEX = re.compile(r"[0-9a-f]*\Z")
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_.-]{0,63}\Z")
_MAX_ENTRIES = 256


class Fields:
    """A JSON object being read field by field. `done()` refuses what nobody read."""

    def __init__(self, value: object, path: str, kind: DocumentKind) -> None:
        self._path = path
        self._kind = kind
        self._read: set[str] = set()
        if not isinstance(value, Mapping):
            raise self._refuse("field_type", "", "object", type(value).__name__)
        self._value = dict(value)

    def _refuse(self, code: str, name: str, expected: str, got: str = "") -> AttestationError:
        path = f"{self._path}.{name}" if name else self._path
        return self._kind.refuse(code, path, expected, got)

    def _take(self, name: str, types: type | tuple[type, ...], word: str) -> Any:
        self._read.add(name)
        if name not in self._value:
            raise self._refuse("field_missing", name, word, "no such field")
        value = self._value[name]
        if not isinstance(value, types) or (isinstance(value, bool) and types is not bool):
            raise self._refuse("field_type", name, word, type(value).__name__)
        return value

    def text(self, name: str, *, max_length: int) -> str:
        """A string of 1 to `max_length` printable characters."""
        value: str = self._take(name, str, "string")
        if not 1 <= len(value) <= max_length or not value.isprintable():
            raise self._refuse("field_value", name, f"1 to {max_length} printable characters")
        return value

    def constant(self, name: str, *allowed: str) -> str:
        """One of the strings written out."""
        value: str = self._take(name, str, " or ".join(allowed))
        if value not in allowed:
            raise self._refuse("field_value", name, " or ".join(allowed), repr(value))
        return value

    def identifier(self, name: str) -> str:
        """A short lower-case name."""
        value: str = self._take(name, str, "identifier")
        if _IDENTIFIER.match(value) is None:
            raise self._refuse("field_value", name, "[a-z][a-z0-9_.-]*, at most 64")
        return value

    def integer(self, name: str, low: int, high: int) -> int:
        """An integer in [low, high]."""
        value: int = self._take(name, int, "integer")
        if not low <= value <= high:
            raise self._refuse("field_value", name, f"{low} to {high}", str(value))
        return value

    def flag(self, name: str) -> bool:
        """A boolean, written out."""
        value: bool = self._take(name, bool, "boolean")
        return value

    def time(self, name: str) -> datetime:
        """An RFC 3339 time in UTC, whole seconds."""
        value: str = self._take(name, str, "time")
        try:
            return parse_time(value)
        except ValueError:
            raise self._refuse("field_value", name, "YYYY-MM-DDTHH:MM:SSZ") from None

    def hex(self, name: str, size: int) -> bytes:
        """Lower-case hex of exactly `size` bytes."""
        value: str = self._take(name, str, "hex")
        return bytes.fromhex(self._hex_digits(name, value, size))

    def _hex_digits(self, name: str, value: object, size: int) -> str:
        if not isinstance(value, str) or len(value) != 2 * size or _HEX.match(value) is None:
            raise self._refuse("field_value", name, f"{2 * size} lower hex digits")
        return value

    def base64(self, name: str, *, max_size: int) -> bytes:
        """Strict standard base64 (RFC 4648 section 4, padded, canonical), 1 to `max_size` bytes."""
        value: str = self._take(name, str, "base64")
        if len(value) > 4 * (max_size + 2) // 3 + 4:
            raise self._refuse("field_value", name, f"1 to {max_size} bytes", "more")
        try:
            data = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise self._refuse("field_value", name, "base64") from None
        if base64.b64encode(data).decode() != value:
            raise self._refuse("field_value", name, "canonical base64")
        if not 1 <= len(data) <= max_size:
            raise self._refuse("field_value", name, f"1 to {max_size} bytes", f"{len(data)} bytes")
        return data

    def array(self, name: str, low: int, high: int) -> list[Any]:
        """A list of low to high entries."""
        value: list[Any] = self._take(name, list, "array")
        if not low <= len(value) <= high:
            raise self._refuse(
                "field_value", name, f"{low} to {high} entries", f"{len(value)} entries"
            )
        return value

    def object(self, name: str) -> Fields:
        """A nested object."""
        return Fields(self._take(name, dict, "object"), f"{self._path}.{name}", self._kind)

    def entries(self, name: str, low: int, high: int) -> list[Fields]:
        """A list of nested objects."""
        return [
            Fields(entry, f"{self._path}.{name}[{index}]", self._kind)
            for index, entry in enumerate(self.array(name, low, high))
        ]

    def keys(self, name: str) -> tuple[str, ...]:
        """The keys of a nested object, in order."""
        return tuple(self._take(name, dict, "object"))

    # Three-valued rules.

    def is_unconstrained(self, name: str) -> bool:
        """Whether somebody wrote the word; then the field counts as read."""
        if self._value.get(name) != UNCONSTRAINED:
            return False
        self._read.add(name)
        return True

    def switch(self, name: str) -> Switch:
        """`on`, `off` or `unconstrained`."""
        return cast("Switch", self.constant(name, "on", "off", UNCONSTRAINED))

    def demand(self, name: str, word: str) -> bool:
        """`word` (true) or `unconstrained` (false)."""
        return self.constant(name, word, UNCONSTRAINED) == word

    def bound(self, name: str, low: int, high: int) -> int | Unconstrained:
        """An integer in [low, high], or `unconstrained`."""
        if self.is_unconstrained(name):
            return UNCONSTRAINED
        return self.integer(name, low, high)

    def digests(self, name: str, size: int) -> tuple[str, ...] | Unconstrained:
        """An ascending list of distinct hex strings of `size` bytes, or `unconstrained`."""
        if self.is_unconstrained(name):
            return UNCONSTRAINED
        values = [
            self._hex_digits(name, entry, size) for entry in self.array(name, 1, _MAX_ENTRIES)
        ]
        return self._ascending(name, values)

    def names(self, name: str, spelling: re.Pattern[str]) -> tuple[str, ...] | Unconstrained:
        """An ascending list of distinct strings that all match `spelling`, or `unconstrained`."""
        if self.is_unconstrained(name):
            return UNCONSTRAINED
        values = self.array(name, 1, _MAX_ENTRIES)
        if not all(isinstance(entry, str) and spelling.match(entry) for entry in values):
            raise self._refuse("field_value", name, f"strings of the form {spelling.pattern}")
        return self._ascending(name, values)

    def matching(self, name: str, spelling: re.Pattern[str]) -> str | Unconstrained:
        """A string that matches `spelling`, or `unconstrained`."""
        if self.is_unconstrained(name):
            return UNCONSTRAINED
        value: str = self._take(name, str, "string")
        if spelling.match(value) is None:
            raise self._refuse("field_value", name, f"the form {spelling.pattern}")
        return value

    # Lists that can not be left open.

    def choice(self, name: str, *allowed: str) -> tuple[str, ...]:
        """An ascending list of distinct words of `allowed`."""
        values = self.array(name, 1, len(allowed))
        for entry in values:
            if not isinstance(entry, str) or entry not in allowed:
                raise self._refuse("field_value", name, " or ".join(allowed), repr(entry))
        return self._ascending(name, values)

    def integers(self, name: str, low: int, high: int) -> tuple[int, ...]:
        """An ascending list of distinct integers in [low, high]."""
        values = self.array(name, 1, _MAX_ENTRIES)
        for entry in values:
            if type(entry) is not int or not low <= entry <= high:
                raise self._refuse("field_value", name, f"integers {low} to {high}")
        return self._ascending(name, values)

    def _ascending(self, name: str, values: list[Any]) -> tuple[Any, ...]:
        if any(left >= right for left, right in pairwise(values)):
            raise self._refuse("field_value", name, "ascending, distinct entries")
        return tuple(values)

    def done(self) -> None:
        """Refuse every field that was not read."""
        unknown = sorted(set(self._value) - self._read)
        if unknown:
            raise self._refuse(
                "field_unknown",
                "",
                f"only {', '.join(sorted(self._read))}",
                f"{len(unknown)} unknown, first {unknown[0][:40]!r}",
            )
