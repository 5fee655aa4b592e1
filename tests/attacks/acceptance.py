"""What the table of attacks has to cover, word for word, and how an entry looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attestation.errors import AttestationError
from enclave.core.errors import Refusal

if TYPE_CHECKING:
    from tests.attacks.scene import Stage

HOST = "host"
MODEL_OWNER = "model_owner"
EVALUATOR = "evaluator"
NETWORK = "network"
HOSTILE_BUNDLE = "hostile bundle"
HOSTILE_MODEL = "hostile model file"
ATTACKERS = (HOST, MODEL_OWNER, EVALUATOR, NETWORK, HOSTILE_BUNDLE, HOSTILE_MODEL)

ACCEPTANCE = (
    "a byte flipped in the plan after approval",
    "missing approval",
    "expired approval",
    "duplicated approval",
    "foreign approval",
    "wrong nonce",
    "reused nonce",
    "missing nonce",
    "evidence bound to another TLS key",
    "evidence bound to another HPKE key",
    "evidence bound to another signing key",
    "evidence bound to another plan (relay)",
    "simulated evidence under a production policy",
    "policy with an unknown key",
    "policy with a missing key",
    "grant for another plan",
    "grant for another role",
    "grant for another session",
    "replayed grant",
    "run past max_runs",
    "sealed segment flipped",
    "sealed segment reordered",
    "sealed segment dropped",
    "sealed segment duplicated",
    "sealed segment truncated",
    "sealed segment from another file",
    "wrong salt",
    "wrong manifest digest",
    "manifest with `..`",
    "manifest with an absolute path",
    "manifest with a duplicate",
    "manifest with a link",
    "manifest oversize",
    "pickle weights",
    "safetensors header bomb",
    "overlapping tensors",
    "template changed",
    "bundle changed after approval",
    "result with an unknown metric",
    "result with NaN",
    "result with −0",
    "result with too many digits",
    "result out of range",
    "result with n below the minimum",
    "result oversize",
    "client certificate of the wrong role on each RPC",
    "altered receipt in each field",
)
"""The attacks that the project promises to refuse, each with its own error code."""

Step = Callable[[], object]
Refused = type[Refusal] | type[AttestationError]


@dataclass(frozen=True)
class Attack:
    """One entry.

    prepare: what the attacker may do unhindered; it must not raise, and returns the
    step that has to be refused with exactly `error` and `code`.
    covers: the line of `ACCEPTANCE`, empty for an attack beyond it.
    """

    name: str
    by: str
    error: Refused
    code: str
    covers: str
    prepare: Callable[[Stage], Step]


class Table(list[Attack]):
    """The attacks on one room, in the order in which they are written down."""

    def add(
        self, name: str, *, by: str, error: Refused, code: str, covers: str = ""
    ) -> Callable[[Callable[[Stage], Step]], Callable[[Stage], Step]]:
        """Decorate the function that prepares an attack."""

        def register(prepare: Callable[[Stage], Step]) -> Callable[[Stage], Step]:
            self.append(Attack(name, by, error, code, covers, prepare))
            return prepare

        return register
