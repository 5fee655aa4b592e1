"""Bounded readers for protobuf fields; a peer is not trusted with sizes or spellings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from enclave.core.vocabulary import ARTIFACTS, DIGEST_SIZE
from enclave.wire.errors import ChannelRefused

_NAME = re.compile(r"[a-z][a-z0-9_.:-]{0,63}\Z")
_MAX_NAMES = 256

AnyMessage = TypeVar("AnyMessage", bound=Message)


def malformed(expected: str) -> ChannelRefused:
    """The refusal of a message that is not what the specification says."""
    return ChannelRefused("message_malformed", expected=expected)


def read_message(kind: type[AnyMessage], data: bytes) -> AnyMessage:
    """Parse protobuf bytes."""
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise malformed(f"a {kind.DESCRIPTOR.name}") from None
    return message


def read_bytes(value: bytes, name: str, size: int) -> bytes:
    """Exactly `size` bytes."""
    if len(value) != size:
        raise malformed(f"{name}: {size} bytes")
    return value


def read_digest(value: bytes, name: str) -> str:
    """32 bytes, as hex."""
    return read_bytes(value, name, DIGEST_SIZE).hex()


def read_plan(value: bytes) -> str:
    """The plan's digest."""
    return read_digest(value, "plan")


def read_artifact(value: str) -> str:
    """One of the artifacts."""
    if value not in ARTIFACTS:
        raise malformed(f"artifact: {' or '.join(ARTIFACTS)}")
    return value


def read_name(value: str, name: str) -> str:
    """A short lower-case name; nothing that a terminal could obey."""
    if _NAME.match(value) is None:
        raise malformed(f"{name}: a short lower-case name")
    return value


def read_names(values: Iterable[str], name: str) -> tuple[str, ...]:
    """A bounded list of names."""
    names = tuple(read_name(value, name) for value in values)
    if len(names) > _MAX_NAMES:
        raise malformed(f"{name}: at most {_MAX_NAMES} entries")
    return names


def read_run(value: int) -> int:
    """A run's number, from 1."""
    if value < 1:
        raise malformed("run: from 1")
    return value


def read_text(value: str, limit: int) -> str:
    """Printable text of at most `limit` characters; the rest is dropped, not refused."""
    return "".join(letter if letter.isprintable() else "?" for letter in value[:limit])
