"""How a run may end once eval code has run: a closed list, as the budget counts it.

Eval code can bring each of these about, so a code is a message of its choice.
Nothing else of a refusal goes to the parties: names of system calls, sizes or
texts would be more messages than the budget's 64.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from enclave.core.errors import IsolationRefused, Refusal, ReleaseRefused, RunRefused
from enclave.core.release import RELEASE_CODES
from enclave.workload.gate.codes import RESULT_MISSING, RUN_CODES

_SANDBOX: Final = "an evaluation within its limits"
_RESULT: Final = "a result of the eval code"

OUTCOMES: Final[Mapping[str, tuple[type[Refusal], str]]] = MappingProxyType(
    {
        **dict.fromkeys(sorted(RUN_CODES), (RunRefused, _RESULT)),
        **{code: (ReleaseRefused, text) for code, text in RELEASE_CODES.items()},
        RESULT_MISSING: (RunRefused, "one result frame"),
        "gate_failed": (ReleaseRefused, ""),
        "sandbox_killed": (RunRefused, _SANDBOX),
        "sandbox_limit_cpu": (RunRefused, _SANDBOX),
        "sandbox_limit_wall": (RunRefused, _SANDBOX),
        "sandbox_signal": (RunRefused, _SANDBOX),
        "sandbox_tripwire": (RunRefused, _SANDBOX),
        "compartment_timeout": (IsolationRefused, _SANDBOX),
        "launcher_gone": (IsolationRefused, "a live launcher"),
        "run_failed": (RunRefused, "no internal error"),
    }
)
"""Code to its class and its one text. At most 2**REFUSAL_BITS."""


def close_refusal(refusal: Refusal) -> Refusal:
    """The refusal as the parties see it: its code if that is an outcome, and a fixed text."""
    code = refusal.code if refusal.code in OUTCOMES else "run_failed"
    kind, expected = OUTCOMES[code]
    return kind(code, expected=expected)
