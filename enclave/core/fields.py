"""Readers for closed documents: each field present, typed and bounded, no other field there."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any

from enclave.core.errors import DocumentRefused

_HEX = re.compile(r"[0-9a-f]*\Z")
_DECIMAL = re.compile(r"(?:0|-?[1-9][0-9]*|-?(?:0|[1-9][0-9]*)\.[0-9]*[1-9])\Z")
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_.-]{0,63}\Z")


class Fields:
    """A JSON object being read field by field.

    `path` names the object in errors.  `done()` refuses fields nobody read,
    so an unknown key can not pass.
    """

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise DocumentRefused("document_field_type", expected=f"{path}: object")
        self._value = dict(value)
        self._path = path
        self._read: set[str] = set()

    def _take(self, name: str, kind: type | tuple[type, ...], word: str) -> Any:
        self._read.add(name)
        if name not in self._value:
            raise DocumentRefused("document_field_missing", expected=f"{self._path}.{name}: {word}")
        value = self._value[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise DocumentRefused(
                "document_field_type",
                expected=f"{self._path}.{name}: {word}",
                got=type(value).__name__,
            )
        return value

    def _refuse(self, name: str, expected: str) -> DocumentRefused:
        return DocumentRefused("document_field_value", expected=f"{self._path}.{name}: {expected}")

    def text(self, name: str, *, max_length: int = 200, min_length: int = 1) -> str:
        """A string of printable characters."""
        value: str = self._take(name, str, "string")
        if not min_length <= len(value) <= max_length or not value.isprintable():
            raise self._refuse(name, f"{min_length} to {max_length} printable characters")
        return value

    def constant(self, name: str, *allowed: str) -> str:
        """One of the strings written out."""
        value: str = self._take(name, str, "string")
        if value not in allowed:
            raise self._refuse(name, " or ".join(allowed))
        return value

    def identifier(self, name: str) -> str:
        """A short lower-case name."""
        value: str = self._take(name, str, "identifier")
        if _IDENTIFIER.match(value) is None:
            raise self._refuse(name, "[a-z][a-z0-9_.-]*, at most 64")
        return value

    def integer(self, name: str, low: int, high: int) -> int:
        """An integer in [low, high]."""
        value: int = self._take(name, int, "integer")
        if not low <= value <= high:
            raise self._refuse(name, f"{low} to {high}")
        return value

    def flag(self, name: str) -> bool:
        """A boolean, written out."""
        value: bool = self._take(name, bool, "boolean")
        return value

    def hex(self, name: str, size: int) -> str:
        """Lower-case hex of exactly `size` bytes."""
        value: str = self._take(name, str, "hex")
        if len(value) != 2 * size or _HEX.match(value) is None:
            raise self._refuse(name, f"{2 * size} lower hex digits")
        return value

    def base64(self, name: str, *, max_size: int, size: int | None = None) -> bytes:
        """Strict standard base64 (RFC 4648 section 4, padded, canonical)."""
        value: str = self._take(name, str, "base64")
        try:
            data = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise self._refuse(name, "base64") from None
        if base64.b64encode(data).decode() != value:
            raise self._refuse(name, "canonical base64")
        if len(data) > max_size or (size is not None and len(data) != size):
            raise self._refuse(name, f"{size if size is not None else max_size} bytes")
        return data

    def decimal(self, name: str) -> str:
        """A canonical decimal string: no exponent, no leading or trailing zeros, no -0."""
        value: str = self._take(name, str, "decimal string")
        if len(value) > 24 or _DECIMAL.match(value) is None:
            raise self._refuse(name, "canonical decimal string")
        return value

    def array(self, name: str, low: int, high: int) -> Sequence[Any]:
        """A list of low to high entries."""
        value: list[Any] = self._take(name, list, "array")
        if not low <= len(value) <= high:
            raise self._refuse(name, f"{low} to {high} entries")
        return value

    def identifiers(self, name: str, low: int, high: int) -> tuple[str, ...]:
        """A list of distinct identifiers."""
        entries = self.array(name, low, high)
        for entry in entries:
            if not isinstance(entry, str) or _IDENTIFIER.match(entry) is None:
                raise self._refuse(name, "identifiers")
        if len(set(entries)) != len(entries):
            raise self._refuse(name, "distinct entries")
        return tuple(entries)

    def object(self, name: str) -> Fields:
        """A nested object."""
        return Fields(self._take(name, dict, "object"), f"{self._path}.{name}")

    def nullable_object(self, name: str) -> Fields | None:
        """A nested object, or null written out."""
        if name in self._value and self._value[name] is None:
            self._read.add(name)
            return None
        return self.object(name)

    def mapping(self, name: str, low: int, high: int) -> Mapping[str, Any]:
        """An object with free identifier keys."""
        value: dict[str, Any] = self._take(name, dict, "object")
        if not low <= len(value) <= high:
            raise self._refuse(name, f"{low} to {high} entries")
        for key in value:
            if _IDENTIFIER.match(key) is None:
                raise self._refuse(name, "identifier keys")
        return value

    def done(self) -> None:
        """Refuse every field that was not read."""
        unknown = sorted(set(self._value) - self._read)
        if unknown:
            raise DocumentRefused(
                "document_field_unknown",
                expected=f"{self._path}: only {', '.join(sorted(self._read))}",
                got=f"{len(unknown)} unknown, first {unknown[0][:40]!r}",
            )
