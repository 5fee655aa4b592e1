"""One upload segment as bytes: protobuf `UploadRequest`, fields 2, 3 and 4, without protobuf.

A protobuf `bytes` field costs a copy on each side, a third of the upload's
speed.  The prefix has a fixed layout, so the ciphertext can be sliced out of the
message.  Any protobuf encoder that writes fields in order makes the same bytes.
"""

from __future__ import annotations

import struct

# stream: field 2, fixed32; segment: field 3, fixed32; ciphertext: field 4, length-delimited.
_PREFIX = struct.Struct("<BIBIB")
_TAGS = (0x15, 0x1D, 0x22)
_MAX_VARINT_BYTES = 5


def pack_segment(stream: int, segment: int, ciphertext: bytes) -> bytes:
    """The message that carries one segment."""
    prefix = _PREFIX.pack(_TAGS[0], stream, _TAGS[1], segment, _TAGS[2])
    return b"".join((prefix, _print_varint(len(ciphertext)), ciphertext))


def split_segment(message: bytes) -> tuple[int, int, memoryview] | None:
    """Stream, segment and ciphertext of a message in the fixed layout; None for any other."""
    if len(message) <= _PREFIX.size:
        return None
    tag_stream, stream, tag_segment, segment, tag_ciphertext = _PREFIX.unpack_from(message)
    if (tag_stream, tag_segment, tag_ciphertext) != _TAGS:
        return None
    length = 0
    for position in range(_MAX_VARINT_BYTES):
        offset = _PREFIX.size + position
        if offset >= len(message):
            return None
        byte = message[offset]
        length |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            body = memoryview(message)[offset + 1 :]
            return (stream, segment, body) if len(body) == length else None
    return None


def _print_varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
