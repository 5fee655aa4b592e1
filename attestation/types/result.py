"""What verification and appraisal yield. Neither type can be made anywhere else."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from datetime import datetime
from typing import Any, NoReturn, final

from attestation.errors import Check
from attestation.types.claims import Claims

_VERIFIED = object()
"""Held by `attestation.verify` alone."""
_APPRAISED = object()
"""Held by `attestation.appraise` alone."""


class _MadeByOneStage:
    """Refuses the ways around the constructor that Python offers by default."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        # Unpickling and copying would make an instance without its stage.
        raise TypeError(f"{type(self).__name__} can not be copied or pickled")


@final
@dataclass(frozen=True)
class VerifiedEvidence(_MadeByOneStage):
    """Evidence whose signatures, chains and times held at `now`. Made by `verify_evidence` only.

    `claims`: one entry an item, in the bundle's order.
    `valid_until`: the first moment at which a certificate or list that was used expires.
    """

    claims: tuple[Claims, ...]
    evidence_digest: str
    now: datetime
    valid_until: datetime
    checks: tuple[Check, ...]
    _made_by: InitVar[object] = None

    def __post_init__(self, _made_by: object) -> None:
        if _made_by is not _VERIFIED:
            raise TypeError("VerifiedEvidence is made by attestation.verify.verify_evidence only")

    def __init_subclass__(cls, **_settings: Any) -> NoReturn:
        raise TypeError("VerifiedEvidence has no subclasses")


@final
@dataclass(frozen=True)
class AttestationResult(_MadeByOneStage):
    """Evidence that a policy accepted (RATS: Attestation Result). Made by `appraise_evidence` only.

    `binding`: the 64 bytes that the evidence proved to bind.
    `checks`: every check with its state; none of them is `failed`, and
    `not_checked` ones are what the policy left `unconstrained` or the kind can not prove.
    """

    policy_name: str
    kinds: tuple[str, ...]
    claims: tuple[Claims, ...]
    binding: bytes
    evidence_digest: str
    policy_digest: str
    reference_values_digest: str
    now: datetime
    checks: tuple[Check, ...]
    _made_by: InitVar[object] = None

    def __post_init__(self, _made_by: object) -> None:
        if _made_by is not _APPRAISED:
            raise TypeError("AttestationResult is made by attestation.appraise only")

    def __init_subclass__(cls, **_settings: Any) -> NoReturn:
        raise TypeError("AttestationResult has no subclasses")
