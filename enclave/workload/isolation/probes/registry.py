"""All probes, in the order in which they run: the loud ones last."""

from __future__ import annotations

from typing import Final

from enclave.workload.isolation.probes import (
    exhaustion,
    files,
    kernel_surface,
    network,
    processes,
)
from enclave.workload.isolation.probes.probe import Probe

PROBES: Final[dict[str, Probe]] = {
    probe.id: probe
    for probe in (
        *network.PROBES,
        *processes.PROBES,
        *files.PROBES,
        *kernel_surface.PROBES,
        *exhaustion.PROBES,
    )
}


def probes_for(kind: str, *, killing: bool | None = None) -> tuple[Probe, ...]:
    """The probes that make sense in a kind of compartment; only killing or only others if asked."""
    return tuple(
        probe
        for probe in PROBES.values()
        if kind in probe.kinds and (killing is None or (probe.expected == "killed") == killing)
    )
