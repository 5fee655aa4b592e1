"""Ask a machine for evidence. An edge: it does I/O and reads the clock."""

from __future__ import annotations

from typing import Any

from attestation.collect.attester import Attester
from attestation.collect.hardware import REQUIREMENTS, refuse_hardware
from attestation.collect.refusals import refuse_collect
from attestation.collect.simulated import SimulatedAttester, SimulatedEvidenceWarning
from attestation.collect.source_tree import measure_source_tree, reference_values_for_simulated
from attestation.types.evidence import KINDS, SIMULATED

__all__ = [
    "Attester",
    "SimulatedAttester",
    "SimulatedEvidenceWarning",
    "measure_source_tree",
    "open_attester",
    "reference_values_for_simulated",
]


def open_attester(kind: str, **settings: Any) -> Attester:
    """Open the attester of a kind. `settings` are those of its class.

    Raises CollectError: `kind_unknown`, `device_missing` (names the path and
    the kernel feature) or `kind_not_collected`.
    """
    if kind == SIMULATED:
        return SimulatedAttester(**settings)
    if kind in REQUIREMENTS:
        raise refuse_hardware(kind)
    raise refuse_collect("kind_unknown", field="kind", expected=" or ".join(KINDS), got=kind[:40])
