"""Bounded frames between compartments, with file descriptors beside them.

A frame is a u32 big-endian length and that many bytes of RFC 8785 JSON.
Descriptors travel by SCM_RIGHTS with the length prefix.  A peer is hostile:
sizes, counts and shapes are bounded before anything is allocated.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from enclave.core.canonical import parse_canonical, print_canonical
from enclave.core.errors import Refusal, RunRefused

MAX_FRAME_BYTES = 1024 * 1024
MAX_FRAME_DESCRIPTORS = 200  # the kernel's SCM_MAX_FD is 253
_LENGTH = struct.Struct(">I")


def send_frame(
    peer: socket.socket, message: Mapping[str, Any], descriptors: Sequence[int] = ()
) -> None:
    """Send one frame; the caller keeps and closes its own descriptors."""
    body = print_canonical(message)
    if len(body) > MAX_FRAME_BYTES or len(descriptors) > MAX_FRAME_DESCRIPTORS:
        raise RunRefused("frame_too_large", expected=f"at most {MAX_FRAME_BYTES} bytes")
    ancillary = []
    if descriptors:
        ancillary = [
            (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors).tobytes())
        ]
    try:
        sent = peer.sendmsg([_LENGTH.pack(len(body))], ancillary)
        peer.sendall(_LENGTH.pack(len(body))[sent:] + body)
    except OSError:
        raise RunRefused("frame_peer_gone", expected="a live compartment") from None


def receive_frame(
    peer: socket.socket,
    *,
    max_bytes: int = MAX_FRAME_BYTES,
    max_descriptors: int = 0,
) -> tuple[dict[str, Any], list[int]]:
    """Receive one frame and its descriptors (close-on-exec set).

    Raises RunRefused: `frame_peer_gone`, `frame_too_large`, `frame_malformed`,
    `frame_descriptors`, `frame_timeout`.  On refusal every received descriptor is closed.
    """
    descriptors: list[int] = []
    try:
        head = _receive_head(peer, descriptors, max_descriptors)
        (size,) = _LENGTH.unpack(head)
        if size > max_bytes:
            raise RunRefused(
                "frame_too_large", expected=f"at most {max_bytes} bytes", got=f"{size} bytes"
            )
        body = _receive_exactly(peer, size)
        try:
            return parse_canonical(body, max_bytes=max_bytes), descriptors
        except Refusal:
            raise RunRefused("frame_malformed", expected="RFC 8785 JSON object") from None
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise


def _receive_head(peer: socket.socket, descriptors: list[int], limit: int) -> bytes:
    # Room for one more than allowed: an unexpected descriptor must be seen and refused.
    room = socket.CMSG_LEN((limit + 1) * array.array("i").itemsize)
    try:
        head, ancillary, flags, _ = peer.recvmsg(_LENGTH.size, room)
    except TimeoutError:
        raise RunRefused("frame_timeout", expected="a frame in time") from None
    except OSError:
        raise RunRefused("frame_peer_gone", expected="a live compartment") from None
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            received = array.array("i")
            received.frombytes(data[: len(data) - len(data) % received.itemsize])
            descriptors.extend(received)
    for descriptor in descriptors:
        fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    if len(descriptors) > limit or flags & socket.MSG_CTRUNC:
        raise RunRefused("frame_descriptors", expected=f"at most {limit} descriptors")
    if not head:
        raise RunRefused("frame_peer_gone", expected="a live compartment")
    return head + _receive_exactly(peer, _LENGTH.size - len(head))


def _receive_exactly(peer: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = peer.recv(min(size - len(parts), 65536))
        except TimeoutError:
            raise RunRefused("frame_timeout", expected="a frame in time") from None
        except OSError:
            raise RunRefused("frame_peer_gone", expected="a live compartment") from None
        if not part:
            raise RunRefused("frame_peer_gone", expected="a live compartment")
        parts += part
    return bytes(parts)
