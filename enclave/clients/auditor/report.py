"""The audit's outcome: every check, what judged it, and what no receipt can prove."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from attestation.errors import AttestationError, CheckState
from enclave.clients.auditor.checklist import AuditCheck
from enclave.core.errors import Refusal
from enclave.core.times import print_time

VERIFIED = "verified"
FAILED = "failed"
INCOMPLETE = "incomplete"

NO_EVIDENCE = (
    "ANYTHING ABOUT THE MACHINE: no evidence was accepted, so everything in the receipt is "
    "the word of an unknown key."
)
NO_PLAN = (
    "WHO AGREED AND ON WHAT: no plan was given, so parties, keys and policies are those that the "
    "receipt itself names. Compare the plan's digest with the one you know, or give --plan."
)
NEVER_PROVEN = (
    "Isolation, controls, samples, wipe, budget and times are what the enclave says of itself: "
    "they are worth what its evidence is worth.",
    "The time of the run: the host sets the enclave's clock. Nonces prove only that evidence is "
    "newer than each party's question.",
    "That no copy of the secrets left by a physical attack or a side channel of the hardware.",
    "What the agreed metric itself reveals, and whether the eval code measures what its title "
    "says: both parties approved that code by its digest.",
    "The scores: they are not in a receipt. A recipient shows them, and the sealed bytes they "
    "came from have the digest listed here.",
    "That no run happened which left no receipt: each party's own ledger limits its grants.",
)


@dataclass(frozen=True)
class AuditReport:
    """The audit of one receipt at `now`."""

    receipt: str
    plan: str | None
    run: int | None
    session: str | None
    now: datetime
    origins: Mapping[str, str]
    checks: tuple[AuditCheck, ...]
    not_proven: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """`verified` only if every check is; a failed check outweighs one not made."""
        states = {check.state for check in self.checks}
        if CheckState.FAILED in states:
            return FAILED
        return VERIFIED if states == {CheckState.VERIFIED} else INCOMPLETE

    @property
    def first_error(self) -> Refusal | AttestationError | None:
        """Why the first failed check failed."""
        return next((check.error for check in self.checks if check.error is not None), None)

    def as_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return {
            "receipt": self.receipt,
            "plan": self.plan,
            "run": self.run,
            "session": self.session,
            "verdict": self.verdict,
            "now": print_time(self.now),
            "judged_by": dict(self.origins),
            "checks": [check.as_json() for check in self.checks],
            "not_proven": list(self.not_proven),
        }
