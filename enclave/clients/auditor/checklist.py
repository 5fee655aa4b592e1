"""The audit's list: every check by name, its state, and why.

A check is `verified` only when it ran and found its rule held.  What could not
run is `not_checked`, and that never counts as passed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from attestation.errors import AttestationError, CheckState
from enclave.core.errors import Refusal

T = TypeVar("T")


@dataclass(frozen=True)
class AuditCheck:
    """One line of the audit."""

    stage: str
    name: str
    state: CheckState
    detail: str
    error: Refusal | AttestationError | None = field(default=None, repr=False)

    def as_json(self) -> dict[str, Any]:
        """The check as a JSON object; `error` only where it failed."""
        line: dict[str, Any] = {
            "stage": self.stage,
            "name": self.name,
            "state": str(self.state),
            "detail": self.detail,
        }
        if self.error is not None:
            line["error"] = self.error.as_json()
        return line


class AuditChecklist:
    """Collects checks in order; failures are recorded, never raised."""

    def __init__(self) -> None:
        self._checks: list[AuditCheck] = []

    @property
    def checks(self) -> tuple[AuditCheck, ...]:
        """Every check recorded so far."""
        return tuple(self._checks)

    def attempt(
        self, stage: str, name: str, step: Callable[[], T], detail: Callable[[T], str]
    ) -> T | None:
        """Run one step: verified with its detail, or failed with its refusal (then None)."""
        try:
            outcome = step()
        except (Refusal, AttestationError) as error:
            self._checks.append(AuditCheck(stage, name, CheckState.FAILED, str(error), error))
            return None
        self._checks.append(AuditCheck(stage, name, CheckState.VERIFIED, detail(outcome)))
        return outcome

    def skip(self, stage: str, name: str, reason: str) -> None:
        """Record a check that could not run."""
        self._checks.append(AuditCheck(stage, name, CheckState.NOT_CHECKED, reason))
