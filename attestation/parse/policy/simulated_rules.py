"""Rules for simulated evidence."""

from __future__ import annotations

from dataclasses import dataclass

from attestation.parse.fields import Fields, Switch, Unconstrained
from attestation.parse.simulated import MAX_TCB

_TEN_YEARS = 10 * 366 * 86400


@dataclass(frozen=True, slots=True)
class SimulatedRules:
    """What simulated evidence must claim; REPORT_DATA is always compared."""

    measurement: bool
    """True: one of the reference values. False: unconstrained."""
    debug: Switch
    minimum_tcb: int | Unconstrained
    maximum_age_seconds: int | Unconstrained
    """Of `issued_at`, which is the attester's clock; nonces prove freshness."""


def parse_simulated_rules(fields: Fields) -> SimulatedRules:
    """Read the closed object."""
    rules = SimulatedRules(
        measurement=fields.demand("measurement", "reference_values"),
        debug=fields.switch("debug"),
        minimum_tcb=fields.bound("minimum_tcb", 0, MAX_TCB),
        maximum_age_seconds=fields.bound("maximum_age_seconds", 0, _TEN_YEARS),
    )
    fields.done()
    return rules
