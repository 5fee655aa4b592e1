"""Rules of the simulated kind, in the order in which they are reported."""

from __future__ import annotations

from attestation.appraise.rules.comparisons import (
    Rule,
    age,
    equal_bytes,
    floor,
    measurement,
    switch,
)
from attestation.parse.policy.simulated_rules import SimulatedRules
from attestation.types.claims import SimulatedClaims

SIMULATED_RULES: tuple[Rule[SimulatedRules, SimulatedClaims], ...] = (
    Rule(
        "report_data",
        "report_data",
        lambda _rules, claims, context: equal_bytes(context.binding, claims.report_data),
        code="binding_mismatch",
    ),
    Rule(
        "measurement",
        "measurement",
        lambda rules, claims, context: measurement(rules.measurement, claims.measurement, context),
    ),
    Rule("debug", "debug", lambda rules, claims, _context: switch(rules.debug, claims.debug)),
    Rule("tcb", "tcb", lambda rules, claims, _context: floor(rules.minimum_tcb, claims.tcb)),
    Rule(
        "age",
        "issued_at",
        lambda rules, claims, context: age(
            rules.maximum_age_seconds, claims.issued_at, context.now
        ),
    ),
)
