"""Typed errors of attestation: one class a stage, each with its own exit code.

| class | exit code | meaning |
|---|---|---|
| `MalformedEvidence` | 2 | bytes are not a well-formed instance of the format |
| `SignatureInvalid` | 3 | a signature is wrong, or no injected root stands behind the key |
| `EndorsementUnavailable` | 4 | nothing at hand endorses it at `now`, or its kind has no verifier |
| `PolicyRefused` | 5 | the evidence is genuine and the policy does not accept it |
| `CollectError` | 6 | the machine can not produce evidence of the kind |
| `MalformedPolicy` | 7 | the verifier's own policy, reference values or roots are malformed |

An error lists every independent failure (`findings`) and, where the stage got
so far, the state of every check (`checks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar


class CheckState(StrEnum):
    """What is known about one named check. `not_checked` never counts as passed."""

    VERIFIED = "verified"
    FAILED = "failed"
    NOT_CHECKED = "not_checked"


@dataclass(frozen=True, slots=True)
class Check:
    """One named check and its state."""

    name: str
    state: CheckState


@dataclass(frozen=True, slots=True)
class Finding:
    """One failed check, in the words of the format's own specification.

    `field` is the specification's field name, `expected` and `got` are short
    printable texts; none of them carries secret content.
    """

    check: str
    field: str
    expected: str
    got: str
    code: str

    def __str__(self) -> str:
        return f"{self.field}: expected {self.expected}; got {self.got} [{self.code}]"

    def as_json(self) -> dict[str, str]:
        """The finding as a flat JSON object."""
        return {
            "check": self.check,
            "field": self.field,
            "expected": self.expected,
            "got": self.got,
            "code": self.code,
        }


class AttestationError(Exception):
    """Evidence was not accepted. `code` is stable and is that of the first finding."""

    stage: ClassVar[str] = "attestation"
    exit_code: ClassVar[int] = 1

    def __init__(
        self, code: str, findings: Sequence[Finding] = (), checks: Sequence[Check] = ()
    ) -> None:
        super().__init__(code)
        self.code = code
        self.findings = tuple(findings)
        self.checks = tuple(checks)

    def __str__(self) -> str:
        return "; ".join([f"{self.stage}: {self.code}", *(str(each) for each in self.findings)])

    def as_json(self) -> dict[str, Any]:
        """The error as a JSON object: stage, code, exit code, findings and checks."""
        return {
            "stage": self.stage,
            "code": self.code,
            "exit_code": self.exit_code,
            "findings": [finding.as_json() for finding in self.findings],
            "checks": [{"name": check.name, "state": str(check.state)} for check in self.checks],
        }


class MalformedEvidence(AttestationError):
    """Bytes are not well-formed evidence of the kind they claim."""

    stage = "parse"
    exit_code = 2


class SignatureInvalid(AttestationError):
    """A signature does not hold, or no injected root stands behind the signer."""

    stage = "verify"
    exit_code = 3


class EndorsementUnavailable(AttestationError):
    """No endorsement covers the evidence at `now`, or its kind has no verifier here."""

    stage = "endorse"
    exit_code = 4


class PolicyRefused(AttestationError):
    """Genuine evidence that the policy does not accept."""

    stage = "appraise"
    exit_code = 5


class CollectError(AttestationError):
    """This machine can not produce evidence of the kind asked for."""

    stage = "collect"
    exit_code = 6


class MalformedPolicy(AttestationError):
    """A policy, reference-values document or root of the verifier's own is not well-formed."""

    stage = "policy"
    exit_code = 7
