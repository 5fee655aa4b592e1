"""Rules over the four TCB_VERSION values of an SEV-SNP report."""

from __future__ import annotations

from attestation.appraise.rules.comparisons import Differs, Holds, Outcome, Rule, Unasked, switch
from attestation.parse.policy.sev_snp_rules import TCB_NAMES, SnpRules
from attestation.types.claims import SnpClaims, SnpTcb

_COMPONENTS = ("fmc", "bootloader", "tee", "snp", "microcode")


def tcb_of(claims: SnpClaims, name: str) -> SnpTcb:
    """One of the four, by its name in policies."""
    return {
        "reported": claims.reported_tcb,
        "committed": claims.committed_tcb,
        "launch": claims.launch_tcb,
        "current": claims.current_tcb,
    }[name]


def _below(low: SnpTcb, high: SnpTcb) -> list[str]:
    """Components of `low` that are missing or above those of `high`."""
    wrong = []
    for component in _COMPONENTS:
        left, right = getattr(low, component), getattr(high, component)
        if left is None and right is None:
            continue
        if left is None or right is None or left > right:
            wrong.append(f"{component} {left} above {right}")
    return wrong


def tcb_floor(rules: SnpRules, claims: SnpClaims, name: str) -> Outcome:
    """Every component at least the floor that the policy gives for the product."""
    floors = rules.tcb_floors[name]
    if isinstance(floors, str):
        return Unasked()
    floor = floors.get(claims.product)
    if floor is None:
        return Differs("a product that the policy has floors for", claims.product)
    got = tcb_of(claims, name)
    # A component that the product does not have needs no floor.
    wrong = [
        component
        for component in _COMPONENTS
        if (least := getattr(floor, component)) is not None
        and ((value := getattr(got, component)) is None or value < least)
    ]
    if not wrong:
        return Holds()
    return Differs(
        ", ".join(f"{component} at least {getattr(floor, component)}" for component in wrong),
        ", ".join(f"{component} {getattr(got, component)}" for component in wrong),
    )


def tcb_order(rules: SnpRules, claims: SnpClaims) -> Outcome:
    """Reported ≤ committed ≤ current and launch ≤ current, component by component."""
    if not rules.tcb_order:
        return Unasked()
    pairs = (("reported", "committed"), ("committed", "current"), ("launch", "current"))
    wrong = [
        f"{low}/{high}: {problem}"
        for low, high in pairs
        for problem in _below(tcb_of(claims, low), tcb_of(claims, high))
    ]
    if not wrong:
        return Holds()
    return Differs("reported ≤ committed ≤ current, launch ≤ current", "; ".join(wrong))


def provisional_firmware(rules: SnpRules, claims: SnpClaims) -> Outcome:
    """Firmware that runs but is not committed can be rolled back."""
    provisional = (
        claims.current_tcb != claims.committed_tcb
        or claims.current_firmware != claims.committed_firmware
    )
    return switch(rules.provisional_firmware, provisional)


def _floor_rule(name: str) -> Rule[SnpRules, SnpClaims]:
    return Rule(
        f"tcb.{name}",
        f"{name.upper()}_TCB",
        lambda rules, claims, _context: tcb_floor(rules, claims, name),
    )


TCB_RULES: tuple[Rule[SnpRules, SnpClaims], ...] = (
    *(_floor_rule(name) for name in TCB_NAMES),
    Rule("tcb.order", "TCB_VERSION", lambda rules, claims, _context: tcb_order(rules, claims)),
    Rule(
        "tcb.provisional",
        "CURRENT_TCB",
        lambda rules, claims, _context: provisional_firmware(rules, claims),
    ),
)
