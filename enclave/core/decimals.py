"""Decimal strings as exact fractions, printed back in the one spelling."""

from __future__ import annotations

import re
from fractions import Fraction

_SPELLING = re.compile(r"(?:0|-?[1-9][0-9]*|-?(?:0|[1-9][0-9]*)\.[0-9]*[1-9])\Z")
MAX_DECIMAL_LENGTH = 24


def parse_decimal(text: str) -> Fraction | None:
    """The value of a canonical decimal string; None for any other spelling."""
    if len(text) > MAX_DECIMAL_LENGTH or _SPELLING.match(text) is None:
        return None
    return Fraction(text)


def digits_after_point(text: str) -> int:
    """How many digits a decimal string has after its point."""
    return len(text.partition(".")[2])


def print_decimal(value: Fraction, digits: int) -> str:
    """Print a fraction that needs at most `digits` digits after the point, trailing zeros cut."""
    scaled = value * 10**digits
    if scaled.denominator != 1:
        raise ValueError("value needs more digits")
    sign = "-" if scaled < 0 else ""
    text = str(abs(scaled.numerator)).rjust(digits + 1, "0")
    if digits == 0:
        return sign + text
    return (sign + text[:-digits] + "." + text[-digits:]).rstrip("0").rstrip(".")
