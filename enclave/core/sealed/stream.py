"""One sealed stream: Tink's AES256_GCM_HKDF_1MB, segment by segment.

    header  = 0x28 ‖ salt (32 bytes) ‖ nonce prefix (7 bytes)
    key     = HKDF-SHA256(artifact key, salt, info = "doubleblind/sealed/v1" ‖ u32 stream number)
    nonce   = prefix ‖ u32 segment number ‖ 0x01 for the last segment, 0x00 before
    segment = AES-256-GCM(key, nonce, plaintext), no associated data

Every ciphertext segment but the last is exactly 1 MiB, the header counted into the
first.  docs/spec/sealed-artifact.md has the format; Tink calls `info` associated data.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from enclave.core.errors import SealedRefused

ByteBuffer: TypeAlias = bytes | bytearray | memoryview

SEGMENT_BYTES = 1024 * 1024
KEY_BYTES = 32
SALT_BYTES = 32
PREFIX_BYTES = 7
HEADER_BYTES = 1 + SALT_BYTES + PREFIX_BYTES
TAG_BYTES = 16
PLAINTEXT_BYTES = SEGMENT_BYTES - TAG_BYTES
"""Plaintext in every segment but the first and the last."""

MAX_STREAM_BYTES = 2**44
_DOMAIN = b"doubleblind/sealed/v1"
_NUMBER = struct.Struct(">I")


@dataclass(frozen=True)
class Segment:
    """Where one segment lies, in bytes: ciphertext (header excluded, tag included), plaintext."""

    number: int
    last: bool
    ciphertext_offset: int
    ciphertext_size: int
    plaintext_offset: int

    @property
    def plaintext_size(self) -> int:
        return self.ciphertext_size - TAG_BYTES


@dataclass(frozen=True)
class StreamLayout:
    """The segments of a stream of `plaintext_size` bytes; an empty one has one segment."""

    plaintext_size: int

    @property
    def segments(self) -> int:
        return max(1, -(-(self.plaintext_size + HEADER_BYTES) // PLAINTEXT_BYTES))

    @property
    def ciphertext_size(self) -> int:
        return HEADER_BYTES + self.plaintext_size + TAG_BYTES * self.segments

    def segment(self, number: int) -> Segment:
        """The segment of that number, counted from 0."""
        count = self.segments
        if not 0 <= number < count:
            raise ValueError("no such segment")
        start = HEADER_BYTES if number == 0 else number * SEGMENT_BYTES
        end = min((number + 1) * SEGMENT_BYTES, self.ciphertext_size)
        return Segment(
            number=number,
            last=number == count - 1,
            ciphertext_offset=start,
            ciphertext_size=end - start,
            plaintext_offset=0 if number == 0 else number * PLAINTEXT_BYTES - HEADER_BYTES,
        )


def parse_ciphertext_size(size: int, stream: int) -> StreamLayout:
    """The layout of a stream whose ciphertext has `size` bytes.

    Raises SealedRefused `index_stream_size` for a size that no stream can have.
    """
    segments = -(-size // SEGMENT_BYTES)
    layout = StreamLayout(max(size - HEADER_BYTES - TAG_BYTES * segments, 0))
    if layout.ciphertext_size != size or size > MAX_STREAM_BYTES:
        raise SealedRefused(
            "index_stream_size",
            expected="a size that a stream can have",
            got=f"stream {stream}: {size} bytes",
        )
    return layout


def make_header(salt: bytes, prefix: bytes) -> bytes:
    """The 40 bytes before the first segment, from 32 and 7 random bytes."""
    if len(salt) != SALT_BYTES or len(prefix) != PREFIX_BYTES:
        raise ValueError("malformed stream header")
    return bytes([HEADER_BYTES]) + salt + prefix


class StreamCipher:
    """Seals and opens the segments of one stream; one object may serve many threads.

    key: the artifact's 32 bytes; header: the stream's 40; stream: its number.
    Raises SealedRefused `segment_invalid` for a malformed header.
    """

    def __init__(self, key: ByteBuffer, header: bytes, stream: int) -> None:
        if len(header) != HEADER_BYTES or header[0] != HEADER_BYTES:
            raise _invalid(stream, 0)
        if memoryview(key).nbytes != KEY_BYTES:
            raise ValueError("malformed artifact key")
        derived = bytearray(KEY_BYTES)
        salt, info = header[1 : 1 + SALT_BYTES], _DOMAIN + _NUMBER.pack(stream)
        HKDF(SHA256(), KEY_BYTES, salt=salt, info=info).derive_into(key, derived)
        self._aead = AESGCM(derived)
        derived[:] = bytes(KEY_BYTES)
        self._prefix = header[1 + SALT_BYTES :]
        self._stream = stream

    def seal_into(self, segment: Segment, plaintext: ByteBuffer, destination: ByteBuffer) -> None:
        """Encrypt a segment; `destination` has exactly `segment.ciphertext_size` bytes."""
        self._aead.encrypt_into(self._nonce(segment), plaintext, None, destination)

    def open_into(self, segment: Segment, ciphertext: ByteBuffer, destination: ByteBuffer) -> None:
        """Decrypt a segment; `destination` has exactly `segment.plaintext_size` bytes.

        Raises SealedRefused `segment_invalid`; what `destination` holds then is to be wiped.
        """
        try:
            self._aead.decrypt_into(self._nonce(segment), ciphertext, None, destination)
        except InvalidTag:
            raise _invalid(self._stream, segment.number) from None

    def _nonce(self, segment: Segment) -> bytes:
        return self._prefix + _NUMBER.pack(segment.number) + bytes([segment.last])


def _invalid(stream: int, segment: int) -> SealedRefused:
    return SealedRefused(
        "segment_invalid",
        expected="the segment as it was sealed, under the artifact's key",
        got=f"stream {stream} segment {segment}",
        hint="forget this segment and upload it again; then the key, if it still fails",
    )
