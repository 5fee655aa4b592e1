"""A small assembler for the classic BPF that seccomp(2) runs.

Only forward jumps by label, 32-bit loads, AND, two comparisons and RET: what
an allow-list needs, and nothing a reader has to look up twice.
"""

from __future__ import annotations

import struct
from typing import Final

from enclave.core.errors import IsolationRefused

RET_ALLOW: Final = 0x7FFF0000
RET_ERRNO: Final = 0x00050000
RET_TRIPWIRE: Final = 0x7FC00000  # SECCOMP_RET_USER_NOTIF: the launcher hears of it
MAX_INSTRUCTIONS: Final = 4096

_LOAD_WORD = 0x20
_AND = 0x54
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_RETURN = 0x06
_JUMP_REACH = 255
_INSTRUCTION: Final = struct.Struct("<HBBI")

OFFSET_NUMBER: Final = 0
OFFSET_ARCHITECTURE: Final = 4


def argument_offset(index: int, *, high: bool = False) -> int:
    """Offset of a system call argument's low (or high) 32 bits in seccomp_data."""
    return 16 + 8 * index + (4 if high else 0)


class Program:
    """Instructions with labels; `assemble` resolves them."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, int, str, str]] = []
        self._labels: dict[str, int] = {}
        self._next_label = 0

    def fresh_label(self) -> str:
        """A label name that nobody else uses."""
        self._next_label += 1
        return f"l{self._next_label}"

    def place(self, label: str) -> None:
        """Put a label before the next instruction."""
        self._labels[label] = len(self._lines)

    def load(self, offset: int) -> None:
        """A := the 32-bit word of seccomp_data at `offset`."""
        self._lines.append((_LOAD_WORD, offset, "", ""))

    def mask(self, bits: int) -> None:
        """A := A AND bits."""
        self._lines.append((_AND, bits, "", ""))

    def jump_equal(self, value: int, yes: str = "", no: str = "") -> None:
        """Go to `yes` when A == value, else to `no`; an empty label is the next line."""
        self._lines.append((_JUMP_EQUAL, value, yes, no))

    def jump_at_least(self, value: int, yes: str = "", no: str = "") -> None:
        """Go to `yes` when A >= value (unsigned), else to `no`."""
        self._lines.append((_JUMP_AT_LEAST, value, yes, no))

    def finish(self, verdict: int) -> None:
        """Return a seccomp action."""
        self._lines.append((_RETURN, verdict, "", ""))

    def assemble(self) -> bytes:
        """The program as an array of struct sock_filter, 8 bytes each."""
        if not 0 < len(self._lines) <= MAX_INSTRUCTIONS:
            raise IsolationRefused(
                "seccomp_filter", expected=f"1 to {MAX_INSTRUCTIONS} instructions"
            )
        code = bytearray()
        for index, (operation, value, yes, no) in enumerate(self._lines):
            code += _INSTRUCTION.pack(
                operation, self._distance(index, yes), self._distance(index, no), value
            )
        return bytes(code)

    def _distance(self, index: int, label: str) -> int:
        if not label:
            return 0
        distance = self._labels[label] - index - 1
        if not 0 <= distance <= _JUMP_REACH:
            raise IsolationRefused("seccomp_filter", expected="forward jumps of at most 255")
        return distance
