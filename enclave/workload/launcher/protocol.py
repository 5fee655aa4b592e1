"""What a broker may ask of the launcher: five requests, closed and bounded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from enclave.core.errors import IsolationRefused
from enclave.core.fields import Fields
from enclave.workload.isolation.limits import Limits, parse_limits

LAUNCHER_DESCRIPTOR: Final = 3
"""The broker's end of the launcher socket, by number."""

LAUNCHER_VARIABLE: Final = "DOUBLEBLIND_LAUNCHER"
"""The environment variable that holds that number."""

MAX_HANDED: Final = 4
MAX_MEMORY_BYTES: Final = 2**44
_SESSION = re.compile(r"[0-9a-f]{32}\Z")


@dataclass(frozen=True, slots=True)
class MountMemory:
    """Make the private memory of a session."""

    session: str
    size: int


@dataclass(frozen=True, slots=True)
class UnmountMemory:
    """Give the private memory of a session back."""

    session: str


@dataclass(frozen=True, slots=True)
class Start:
    """Start a compartment of a kind in the closed table."""

    kind: str
    probe: str
    name: str
    limits: Limits
    threads: int
    settings: Mapping[str, Any]
    descriptors: tuple[str, ...]
    memory: str


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill a compartment and everything in it."""

    compartment: int


@dataclass(frozen=True, slots=True)
class Describe:
    """Tell the facts of the isolation profile."""


Request = MountMemory | UnmountMemory | Start | Kill | Describe


def parse_session(session: str) -> str:
    """A session name, 32 hex digits; refused otherwise: it becomes a directory name."""
    if _SESSION.match(session) is None:
        raise IsolationRefused("memory_session", expected="32 lower hex digits")
    return session


def parse_number(message: Mapping[str, Any]) -> int:
    """The request's number, to which an answer or a refusal refers."""
    return Fields(message, "request").integer("id", 0, 2**53 - 1)


def parse_request(message: Mapping[str, Any]) -> Request:
    """The request; DocumentRefused when it is none."""
    fields = Fields(message, "request")
    fields.integer("id", 0, 2**53 - 1)
    operation = fields.constant("op", "mount_memory", "unmount_memory", "start", "kill", "describe")
    request: Request
    if operation == "mount_memory":
        session = parse_session(fields.text("session"))
        request = MountMemory(session, fields.integer("size", 4096, MAX_MEMORY_BYTES))
    elif operation == "unmount_memory":
        request = UnmountMemory(parse_session(fields.text("session")))
    elif operation == "start":
        request = _parse_start(fields)
    elif operation == "kill":
        request = Kill(fields.integer("compartment", 0, 2**53 - 1))
    else:
        request = Describe()
    fields.done()
    return request


def _parse_start(fields: Fields) -> Start:
    memory = fields.text("memory", min_length=0)
    return Start(
        kind=fields.identifier("kind"),
        probe=fields.text("probe", min_length=0, max_length=64),
        name=fields.text("name", max_length=64),
        limits=parse_limits(fields.mapping("limits", 1, 32)),
        threads=fields.integer("threads", 1, 1024),
        settings=fields.mapping("settings", 0, 256),
        descriptors=fields.identifiers("descriptors", 0, MAX_HANDED),
        memory=parse_session(memory) if memory else "",
    )
