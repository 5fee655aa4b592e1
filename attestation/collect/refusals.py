"""How collectors say what is missing."""

from __future__ import annotations

from attestation.errors import CollectError, Finding


def refuse_collect(code: str, *, field: str, expected: str, got: str) -> CollectError:
    """Build a CollectError with its one finding."""
    return CollectError(code, [Finding("collect", field, expected, got, code)])
