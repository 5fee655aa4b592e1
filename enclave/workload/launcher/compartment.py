"""One running compartment, as the launcher sees it: from the start to the last process's end."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from enclave.core.errors import IsolationRefused, Refusal
from enclave.core.fields import Fields
from enclave.workload.frames import receive_frame, send_frame
from enclave.workload.isolation.limits import Limits
from enclave.workload.isolation.profile import Profile
from enclave.workload.isolation.seccomp.tripwire import receive_tripped, still_stopped
from enclave.workload.launcher.spawn import Child, end_orphans, forget

START_SECONDS = 120
"""How long a compartment may take from its start until it is sealed."""

_REAP_SECONDS = 5.0
_FRAME_SECONDS = 5.0
# The kernel enforces by sampled ticks and reports by exact time; this only names the end.
_CPU_SHARE = 0.5
_CHILD_PID = re.compile(rb'"child-pid": ([0-9]+)[^0-9]')


@dataclass
class Compartment:
    """State of one compartment. `outer` is bwrap, `inner` the first process of its namespace."""

    number: int
    profile: Profile
    limits: Limits
    outer: Child
    info: int
    orders: socket.socket | None
    started: float = field(default_factory=time.monotonic)
    deadline: float = 0.0
    told: bytes = b""
    inner: int | None = None
    listener: int | None = None
    reason: str = ""
    tripwires: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.deadline = self.started + START_SECONDS

    def descriptors(self) -> list[int]:
        """What the launcher must watch."""
        watched = [self.outer.pidfd]
        if self.info >= 0:
            watched.append(self.info)
        if self.orders is not None:
            watched.append(self.orders.fileno())
        if self.listener is not None:
            watched.append(self.listener)
        return watched

    def read_info(self) -> None:
        """Learn from bwrap the pid of the namespace's first process.

        bwrap writes its facts in several pieces; the pipe stays open until it
        is done, or the next piece would end it by SIGPIPE.
        """
        text = os.read(self.info, 4096)
        self.told += text
        match = _CHILD_PID.search(self.told)
        if match is not None and self.inner is None:
            self.inner = _open_child(int(match[1]), self.outer.pid)
        if not text:
            os.close(self.info)
            self.info = -1

    def read_orders(self) -> dict[str, Any] | None:
        """One event of stage two for the broker; None when it has nothing more to say."""
        if self.orders is None:
            return None
        self.orders.settimeout(_FRAME_SECONDS)
        try:
            message, descriptors = receive_frame(self.orders, max_descriptors=1)
        except Refusal:
            self.close_orders()
            return None
        if message.get("event") == "sealed" and len(descriptors) == 1:
            self.listener = descriptors[0]
            self.deadline = time.monotonic() + self.limits.wall_seconds
            try:
                send_frame(self.orders, {"event": "go"})
            except Refusal:
                self.close_orders()
            return {"event": "sealed", "compartment": self.number, "abi": int(message["abi"])}
        for descriptor in descriptors:
            os.close(descriptor)
        return {"event": "refused", "compartment": self.number, "refusal": _refusal(message)}

    def close_orders(self) -> None:
        """Stage two is over."""
        if self.orders is not None:
            self.orders.close()
            self.orders = None

    def read_tripwire(self) -> str:
        """A forbidden call was made: kill, and return its name ("" when the caller is gone)."""
        if self.listener is None:
            return ""
        tripped = receive_tripped(self.listener)
        if tripped is None:
            if _hung_up(self.listener):
                os.close(self.listener)
                self.listener = None
            return ""
        self.tripwires.append(tripped.name)
        if self.profile.tripwire_kills_all:
            self.kill("tripwire")
        elif still_stopped(self.listener, tripped):
            os.kill(tripped.pid, signal.SIGKILL)
        return tripped.name

    def kill(self, reason: str) -> None:
        """Kill every process of the compartment; the first reason stays."""
        self.reason = self.reason or reason
        # The first process of a pid namespace takes all others with it; bwrap goes too,
        # for the case that its child is not known yet (it dies with its parent).
        for descriptor in (self.inner, self.outer.pidfd):
            if descriptor is not None:
                try:
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def reap(self) -> list[dict[str, Any]]:
        """After bwrap ended: make sure that nothing lives, release everything, tell the end."""
        _, status, usage = os.wait4(self.outer.pid, 0)
        forget(self.outer)
        while self.info >= 0 and select.select([self.info], [], [], 0)[0]:
            self.read_info()
        if self.inner is not None:
            self._end_inner(self.inner)
        end_orphans()
        # A refusal written just before the end must not be lost.
        events = []
        while self.orders is not None and select.select([self.orders], [], [], 0)[0]:
            event = self.read_orders()
            if event is not None:
                events.append(event)
        self.close_orders()
        for descriptor in (self.outer.pidfd, self.inner, self.listener, self.info):
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)
        cpu = usage.ru_utime + usage.ru_stime
        code = os.waitstatus_to_exitcode(status)
        events.append(
            {
                "event": "exit",
                "compartment": self.number,
                "code": self._end_code(code, cpu),
                "status": code if code >= 0 else 128 - code,
                "tripwires": self.tripwires[:64],
                "cpu_milliseconds": int(cpu * 1000),
                "wall_milliseconds": int((time.monotonic() - self.started) * 1000),
            }
        )
        return events

    def _end_inner(self, inner: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(inner, signal.SIGKILL)
        if not select.select([inner], [], [], _REAP_SECONDS)[0]:
            raise IsolationRefused("compartment_alive", expected="a dead compartment")

    def _end_code(self, status: int, cpu: float) -> str:
        if self.reason:
            return self.reason
        if status in (137, -9) and cpu >= _CPU_SHARE * self.limits.cpu_seconds:
            return "limit_cpu"
        if status < 0 or status > 128:
            return "signal"
        return "exited"


def _refusal(message: dict[str, Any]) -> dict[str, str]:
    try:
        fields = Fields(message, "stage_two")
        fields.constant("event", "refused")
        inner = fields.object("refusal")
        fields.done()
        return {
            name: inner.text(name, min_length=0, max_length=400)
            for name in ("stage", "code", "expected", "got", "hint")
        }
    except Refusal:
        return IsolationRefused("stage_two_malformed").as_json()


def _open_child(pid: int, parent: int) -> int | None:
    """A pidfd of `pid` while it is really a child of `parent`: a number alone may be stale."""
    try:
        descriptor = os.pidfd_open(pid)
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    if int(fields[1]) != parent:
        os.close(descriptor)
        return None
    return descriptor


def _hung_up(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))
