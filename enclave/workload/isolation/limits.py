"""Resource limits of a compartment: what is bounded, by whom, and the launcher's ceilings."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from enclave.core.fields import Fields

GIB: Final = 1024**3
MIB: Final = 1024**2

CEILINGS: Final = {
    "wall_seconds": 7 * 24 * 3600,
    "cpu_seconds": 30 * 24 * 3600,
    "memory_bytes": 16 * 1024 * GIB,
    "tmp_bytes": 64 * GIB,
    "file_bytes": 64 * GIB,
    "processes": 4096,
    "open_files": 65536,
    "bundle_bytes": 64 * GIB,
    "suite_bytes": 64 * GIB,
}
"""The most a broker may ask for, by field of Limits."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one compartment.

    `wall_seconds` counts from the moment the compartment is sealed and is kept
    by the launcher; `cpu_seconds` and `memory_bytes` (address space) hold for
    each process, `processes` (threads included) and the `*_bytes` of the
    tmpfs mounts for the whole compartment.
    """

    wall_seconds: int = 600
    cpu_seconds: int = 600
    memory_bytes: int = 4 * GIB
    tmp_bytes: int = 256 * MIB
    file_bytes: int = 64 * MIB
    processes: int = 64
    open_files: int = 256
    bundle_bytes: int = 64 * MIB
    suite_bytes: int = 64 * MIB

    def as_json(self) -> dict[str, int]:
        """The limits as a JSON object."""
        return asdict(self)


def parse_limits(value: Mapping[str, object]) -> Limits:
    """Read limits from a broker; every field present, none above its ceiling."""
    fields = Fields(value, "limits")
    limits = Limits(**{name: fields.integer(name, 1, top) for name, top in CEILINGS.items()})
    fields.done()
    return limits


def apply_limits(limits: Limits) -> None:
    """Set the rlimits of the calling process, soft and hard alike, for good."""
    # A soft CPU limit only sends SIGXCPU, which the first process of a pid namespace ignores.
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_NICE, 0),
        (resource.RLIMIT_RTPRIO, 0),
        (resource.RLIMIT_SIGPENDING, 256),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_AS, limits.memory_bytes),
    ):
        _, hard = resource.getrlimit(kind)
        bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bounded, bounded))
