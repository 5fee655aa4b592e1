"""Typed refusals of the evaluation protocol.

A refusal says which rule stopped the protocol (`code`, stable), what was
expected, what was found, and what to do next.  None of the four may carry
secret content: digests, sizes, roles and names of fields only.
"""

from __future__ import annotations

import re

_CODE = re.compile(r"[a-z][a-z0-9_]{2,63}\Z")


class Refusal(Exception):
    """The protocol refuses to go on.

    Every stage has a subclass, every rule a code; both are part of the public
    interface (docs/errors.md lists them).
    """

    stage = "protocol"

    def __init__(self, code: str, *, expected: str = "", got: str = "", hint: str = "") -> None:
        if _CODE.match(code) is None:
            raise ValueError(f"malformed refusal code {code!r}")
        super().__init__(code)
        self.code = code
        self.expected = expected
        self.got = got
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.stage}: {self.code}"
        if self.expected:
            text += f"; expected {self.expected}"
        if self.got:
            text += f"; got {self.got}"
        if self.hint:
            text += f" ({self.hint})"
        return text

    def as_json(self) -> dict[str, str]:
        """The refusal as a flat JSON object for `--json` output."""
        return {
            "stage": self.stage,
            "code": self.code,
            "expected": self.expected,
            "got": self.got,
            "hint": self.hint,
        }


class DocumentRefused(Refusal):
    """Bytes are not a well-formed document of the kind asked for."""

    stage = "document"


class PlanRefused(Refusal):
    """The plan is well-formed JSON but not an acceptable plan."""

    stage = "plan"


class ApprovalRefused(Refusal):
    """An approval is missing, malformed, foreign, expired or does not fit."""

    stage = "approval"


class BindingRefused(Refusal):
    """Inputs of the binding are not well-formed, or a binding differs."""

    stage = "binding"


class SealedRefused(Refusal):
    """A sealed artifact is malformed, altered or not the committed one."""

    stage = "sealed"


class UploadRefused(Refusal):
    """An upload step cannot be taken; what was acknowledged stays."""

    stage = "upload"


class GrantRefused(Refusal):
    """A key grant may not be made, or is not accepted."""

    stage = "grant"


class SessionRefused(Refusal):
    """The session is not in a state that allows this step, or not for this caller."""

    stage = "session"


class IsolationRefused(Refusal):
    """A mandatory isolation layer is missing or was broken."""

    stage = "isolation"


class ModelRefused(Refusal):
    """The model directory is not safe to load, or not the planned one."""

    stage = "model"


class RunRefused(Refusal):
    """The run ended without a result."""

    stage = "run"


class ReleaseRefused(Refusal):
    """The gate does not release the result."""

    stage = "release"


class ReceiptRefused(Refusal):
    """The receipt does not prove what it claims."""

    stage = "receipt"


STAGES: dict[str, type[Refusal]] = {
    cls.stage: cls
    for cls in (
        Refusal,
        DocumentRefused,
        PlanRefused,
        ApprovalRefused,
        BindingRefused,
        SealedRefused,
        UploadRefused,
        GrantRefused,
        SessionRefused,
        IsolationRefused,
        ModelRefused,
        RunRefused,
        ReleaseRefused,
        ReceiptRefused,
    )
}
"""Stage name to class: lets a refusal cross a process border and be raised again."""


def rebuild_refusal(
    stage: str, code: str, *, expected: str = "", got: str = "", hint: str = ""
) -> Refusal:
    """Rebuild a refusal that came from another process. An unknown stage is `Refusal`."""
    return STAGES.get(stage, Refusal)(code, expected=expected, got=got, hint=hint)
