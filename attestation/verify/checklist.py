"""The record of named checks: failures are collected and raised together."""

from __future__ import annotations

from attestation.errors import AttestationError, Check, CheckState, Finding


class Checklist:
    """Checks of one stage, in order. `raise_failures` raises if any failed.

    The error's class is that of the failure with the lowest exit code, because
    a later stage's opinion about evidence that an earlier one rejects is void;
    its findings are all failures.
    """

    def __init__(self) -> None:
        self._checks: list[Check] = []
        self._failures: list[tuple[type[AttestationError], Finding]] = []

    def verified(self, name: str) -> None:
        """Record that a check was made and holds."""
        self._checks.append(Check(name, CheckState.VERIFIED))

    def not_checked(self, name: str) -> None:
        """Record that nothing is known about a check: it does not count as passed."""
        self._checks.append(Check(name, CheckState.NOT_CHECKED))

    def failed(
        self,
        name: str,
        error: type[AttestationError],
        *,
        code: str,
        field: str,
        expected: str,
        got: str,
    ) -> None:
        """Record a failure."""
        self._checks.append(Check(name, CheckState.FAILED))
        self._failures.append((error, Finding(name, field, expected, got, code)))

    @property
    def has_failures(self) -> bool:
        """Whether `raise_failures` would raise."""
        return bool(self._failures)

    def raise_failures(self) -> None:
        """Raise one error with every failure; do nothing if there is none."""
        if not self._failures:
            return
        error, first = min(self._failures, key=lambda failure: failure[0].exit_code)
        findings = [finding for _, finding in self._failures]
        raise error(first.code, findings, self._checks)

    @property
    def checks(self) -> tuple[Check, ...]:
        """Every check recorded so far."""
        return tuple(self._checks)
