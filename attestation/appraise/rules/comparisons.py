"""Comparisons of one rule with one claim. Missing data never satisfies a rule."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from attestation.parse.fields import UNCONSTRAINED, Switch, Unconstrained

Rules = TypeVar("Rules")
ClaimsOfKind = TypeVar("ClaimsOfKind")

CLOCK_SKEW_SECONDS = 300
_ABSENT = "absent from the evidence"


@dataclass(frozen=True, slots=True)
class Holds:
    """The claim satisfies the rule."""


@dataclass(frozen=True, slots=True)
class Unasked:
    """The policy's author left the claim unconstrained."""


@dataclass(frozen=True, slots=True)
class Differs:
    """The claim does not satisfy the rule, or is not there."""

    expected: str
    got: str


Outcome = Holds | Unasked | Differs


@dataclass(frozen=True, slots=True)
class Context:
    """What the verifier itself brings to every rule.

    binding: 64 bytes. gpu_nonce: 32 bytes. measurements: accepted ones of the
    kind at hand, hex to name.
    """

    binding: bytes
    gpu_nonce: bytes
    now: datetime
    measurements: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Rule(Generic[Rules, ClaimsOfKind]):
    """One named rule. `field` is the specification's name, `apply` compares."""

    name: str
    field: str
    apply: Callable[[Rules, ClaimsOfKind, Context], Outcome]
    code: str = ""
    """Of the finding; made from kind and name where empty."""


def _outcome(holds: bool, expected: str, got: str) -> Outcome:
    return Holds() if holds else Differs(expected, got)


def equal_bytes(expected: bytes, got: bytes) -> Outcome:
    """Byte for byte. Both are public values."""
    return _outcome(expected == got, expected.hex(), got.hex())


def switch(rule: Switch, got: bool | None) -> Outcome:
    """A flag against `on`, `off` or `unconstrained`."""
    if rule == UNCONSTRAINED:
        return Unasked()
    if got is None:
        return Differs(rule, _ABSENT)
    word = "on" if got else "off"
    return _outcome(word == rule, rule, word)


def floor(rule: int | Unconstrained, got: int | None) -> Outcome:
    """A number against its minimum."""
    if rule == UNCONSTRAINED:
        return Unasked()
    if got is None:
        return Differs(f"at least {rule}", _ABSENT)
    return _outcome(got >= rule, f"at least {rule}", str(got))


def bits(rule: int | Unconstrained, got: int | None) -> Outcome:
    """A vector against the bits that it must have set."""
    if rule == UNCONSTRAINED:
        return Unasked()
    if got is None:
        return Differs(f"bits {rule:#x} set", _ABSENT)
    return _outcome(got & rule == rule, f"bits {rule:#x} set", f"{got:#x}")


def listed(rule: Collection[str] | Unconstrained, got: str | None) -> Outcome:
    """A text against the list of accepted ones."""
    if isinstance(rule, str):
        return Unasked()
    expected = " or ".join(sorted(rule)[:3]) + (" or …" if len(rule) > 3 else "")
    if got is None:
        return Differs(expected, _ABSENT)
    return _outcome(got in rule, expected, got)


def listed_number(rule: Collection[int], got: int) -> Outcome:
    """A number against the list of accepted ones."""
    return _outcome(got in rule, " or ".join(str(each) for each in rule), str(got))


def demand(rule: bool, holds: bool, expected: str, got: str) -> Outcome:
    """A fact that the policy requires or leaves open."""
    return _outcome(holds, expected, got) if rule else Unasked()


def measurement(rule: bool, got: bytes, context: Context) -> Outcome:
    """A measurement against the reference values."""
    if not rule:
        return Unasked()
    if not context.measurements:
        return Differs("a reference value of this kind", "no reference values of this kind")
    return listed(tuple(context.measurements), got.hex())


def age(rule: int | Unconstrained, since: datetime | None, now: datetime) -> Outcome:
    """Seconds since a time, at most `rule`; a time more than the clock skew ahead is refused."""
    if rule == UNCONSTRAINED:
        return Unasked()
    if since is None:
        return Differs(f"at most {rule} seconds old", _ABSENT)
    seconds = int((now - since).total_seconds())
    return _outcome(
        -CLOCK_SKEW_SECONDS <= seconds <= rule, f"at most {rule} seconds old", f"{seconds} seconds"
    )
