"""The launcher's loop: one broker, its requests, and the compartments' ends.

Single-threaded.  A broker that is gone, silent in the middle of a frame or
malformed ends everything: the loop kills all compartments and returns.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any

from enclave.core.errors import IsolationRefused, Refusal
from enclave.workload.frames import receive_frame, send_frame
from enclave.workload.launcher.compartment import Compartment
from enclave.workload.launcher.protocol import (
    MAX_HANDED,
    Describe,
    Kill,
    MountMemory,
    Request,
    Start,
    UnmountMemory,
    parse_number,
    parse_request,
)
from enclave.workload.launcher.root import mount_memory, unmount_memory
from enclave.workload.launcher.spawn import Child, end_orphans, forget
from enclave.workload.launcher.starter import Starter

_FRAME_SECONDS = 5.0
_STOP_SECONDS = 10.0
_MAX_COMPARTMENTS = 256
_MAX_MEMORIES = 64


class Server:
    """Serves one broker until it ends; `run` returns the broker's exit status."""

    def __init__(self, broker: Child, peer: socket.socket, starter: Starter) -> None:
        self._broker = broker
        self._peer = peer
        self._starter = starter
        self._compartments: dict[int, Compartment] = {}
        self._memories: set[str] = set()
        self._next_number = 1
        self._stop_at = 0.0
        peer.settimeout(_FRAME_SECONDS)

    def stop(self) -> None:
        """Ask the broker to end, and end it soon if it does not; safe in a signal handler."""
        if not self._stop_at:
            self._stop_at = time.monotonic() + _STOP_SECONDS
            self._signal_broker(signal.SIGTERM)

    def run(self) -> int:
        """Serve, then kill and reap everything."""
        try:
            while not self._turn() and not self._stop_due():
                self._enforce_deadlines()
        finally:
            status = self._end_broker()
            self._end_compartments()
        return status

    def _turn(self) -> bool:
        """One round; True when the broker is gone."""
        poll = select.poll()
        owners: dict[int, Compartment] = {}
        for descriptor in (self._peer.fileno(), self._broker.pidfd):
            poll.register(descriptor, select.POLLIN)
        for compartment in self._compartments.values():
            for descriptor in compartment.descriptors():
                poll.register(descriptor, select.POLLIN)
                owners[descriptor] = compartment
        ready = [descriptor for descriptor, _ in poll.poll(self._poll_milliseconds())]
        try:
            for descriptor in ready:
                if descriptor in owners:
                    self._serve_compartment(owners[descriptor], descriptor)
            if self._broker.pidfd in ready:
                return True
            if self._peer.fileno() in ready:
                self._serve_broker()
        except Refusal:
            return True
        return False

    def _poll_milliseconds(self) -> int:
        deadlines = [c.deadline for c in self._compartments.values()]
        left = min((d - time.monotonic() for d in deadlines), default=1.0)
        return max(0, min(1000, int(left * 1000) + 1))

    def _enforce_deadlines(self) -> None:
        now = time.monotonic()
        for compartment in self._compartments.values():
            if now >= compartment.deadline and not compartment.reason:
                sealed = compartment.listener is not None
                compartment.kill("limit_wall" if sealed else "limit_start")

    def _serve_compartment(self, compartment: Compartment, descriptor: int) -> None:
        if compartment.number not in self._compartments:
            return  # reaped earlier in this round
        event: dict[str, Any] | None = None
        if descriptor == compartment.outer.pidfd:
            del self._compartments[compartment.number]
            for told in compartment.reap():
                send_frame(self._peer, told)
        elif descriptor == compartment.info:
            compartment.read_info()
        elif compartment.orders is not None and descriptor == compartment.orders.fileno():
            event = compartment.read_orders()
        elif descriptor == compartment.listener:
            name = compartment.read_tripwire()
            if name:
                event = {"event": "tripwire", "compartment": compartment.number, "call": name}
        if event is not None:
            send_frame(self._peer, event)

    def _serve_broker(self) -> None:
        message, descriptors = receive_frame(self._peer, max_descriptors=MAX_HANDED)
        handed: Sequence[int] = ()
        try:
            number = parse_number(message)  # without one there is nobody to answer: the end
            try:
                answer, handed = self._answer(parse_request(message), descriptors)
                reply: dict[str, Any] = {"reply": number, "answer": answer}
            except Refusal as refusal:
                reply = {"reply": number, "refusal": refusal.as_json()}
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        try:
            send_frame(self._peer, reply, handed)
        finally:
            for descriptor in handed:
                os.close(descriptor)

    def _answer(
        self, request: Request, descriptors: Sequence[int]
    ) -> tuple[dict[str, Any], Sequence[int]]:
        if descriptors and not isinstance(request, Start):
            raise IsolationRefused("descriptors_unexpected", expected="none")
        match request:
            case MountMemory(session, size):
                return {"path": self._mount(session, size)}, ()
            case UnmountMemory(session):
                self._memories.discard(session)
                unmount_memory(session)
                return {}, ()
            case Start():
                return self._start(request, descriptors)
            case Kill(number):
                if number in self._compartments:
                    self._compartments[number].kill("killed")
                return {}, ()
            case Describe():
                return self._starter.describe(), ()

    def _mount(self, session: str, size: int) -> str:
        identity = self._starter.identities.of("broker")
        if identity.uid is None or identity.gid is None:
            raise IsolationRefused(
                "memory_needs_root",
                expected="a launcher started as root",
                hint="use a memfd, or start as root",
            )
        if len(self._memories) >= _MAX_MEMORIES:
            raise IsolationRefused("memory_limit", expected=f"at most {_MAX_MEMORIES} memories")
        path = mount_memory(session, size, identity.uid, identity.gid)
        self._memories.add(session)
        return path

    def _start(
        self, request: Start, descriptors: Sequence[int]
    ) -> tuple[dict[str, Any], Sequence[int]]:
        if len(self._compartments) >= _MAX_COMPARTMENTS:
            raise IsolationRefused(
                "compartment_limit", expected=f"at most {_MAX_COMPARTMENTS} compartments"
            )
        if request.memory and request.memory not in self._memories:
            raise IsolationRefused("memory_unknown", expected="a mounted session memory")
        compartment, control = self._starter.start(self._next_number, request, descriptors)
        self._next_number += 1
        self._compartments[compartment.number] = compartment
        return {"compartment": compartment.number, "pid": compartment.outer.pid}, [control]

    def _stop_due(self) -> bool:
        return bool(self._stop_at) and time.monotonic() >= self._stop_at

    def _signal_broker(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._broker.pidfd, number)

    def _end_broker(self) -> int:
        self._peer.close()
        self._signal_broker(signal.SIGKILL)
        _, status = os.waitpid(self._broker.pid, 0)
        forget(self._broker)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def _end_compartments(self) -> None:
        for compartment in self._compartments.values():
            compartment.kill("launcher_stops")
        for compartment in self._compartments.values():
            compartment.reap()
        self._compartments.clear()
        end_orphans()
        for session in self._memories:
            try:
                unmount_memory(session)
            except IsolationRefused:
                continue  # detached: it goes with the namespace
