"""Unambiguous byte strings to hash or to bind: a domain tag and length-prefixed fields."""

from __future__ import annotations

import struct


def lp(tag: bytes, *fields: bytes) -> bytes:
    """`tag ‖ 0x00 ‖ (u32 big-endian length ‖ bytes) for each field`.

    The tag is ASCII without NUL, so no two (tag, fields) lists share an encoding.
    """
    if not tag or b"\x00" in tag:
        raise ValueError("malformed domain tag")
    return tag + b"\x00" + b"".join(struct.pack(">I", len(field)) + field for field in fields)
