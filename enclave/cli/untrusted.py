"""Text from elsewhere on its way to a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text without control characters: what came from elsewhere can not steer a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
