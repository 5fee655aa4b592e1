"""Plan approval: one party's signature over one plan (docs/spec/approval.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from enclave.core.canonical import digest_bytes
from enclave.core.dsse import Envelope, parse_envelope, sign_envelope, verify_envelope
from enclave.core.errors import ApprovalRefused, DocumentRefused
from enclave.core.fields import Fields
from enclave.core.party import Party
from enclave.core.plan import Plan
from enclave.core.statement import Statement, read_statement
from enclave.core.times import parse_time, print_time
from enclave.core.vocabulary import APPROVING_ROLES, MAX_RUNS, PLAN_APPROVAL_TYPE, ROLES

APPROVE = "approve"
NONCE_SIZE = 32
MAX_APPROVAL_BYTES = 8 * 1024
_MAX_PAYLOAD = 4 * 1024


@dataclass(frozen=True)
class Approval:
    """A verified approval. Made only by `verify_approval`.

    digest: SHA-256 of the envelope's bytes, hex.  nonce: 32 bytes, hex.
    """

    role: str
    plan: str
    nonce: str
    max_runs: int
    not_after: datetime
    envelope: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the envelope, hex."""
        return digest_bytes(self.envelope)


@dataclass(frozen=True)
class Approvals:
    """The quorum: both approving roles, over one plan. Made only by `verify_approvals`."""

    model_owner: Approval
    evaluator: Approval

    @property
    def max_runs(self) -> int:
        """Runs that both allow."""
        return min(self.model_owner.max_runs, self.evaluator.max_runs)

    @property
    def not_after(self) -> datetime:
        """The last second that both allow."""
        return min(self.model_owner.not_after, self.evaluator.not_after)

    @property
    def envelopes(self) -> tuple[bytes, bytes]:
        """Owner's and evaluator's envelope, in this order."""
        return (self.model_owner.envelope, self.evaluator.envelope)

    def refuse_expired(self, now: datetime) -> None:
        """Refuse `approval_expired` when either approval has run out."""
        for approval in (self.model_owner, self.evaluator):
            _refuse_expired(approval, now)


def _refuse_expired(approval: Approval, now: datetime) -> None:
    if now > approval.not_after:
        raise ApprovalRefused(
            "approval_expired",
            expected=f"{approval.role}: now at most {print_time(approval.not_after)}",
            got=print_time(now),
        )


def _refuse_past_plan(plan: Plan, max_runs: int, not_after: datetime) -> None:
    """An approval may narrow a plan, never widen it."""
    if not 1 <= max_runs <= plan.max_runs:
        raise ApprovalRefused(
            "approval_exceeds_plan", expected=f"1 to {plan.max_runs} runs", got=str(max_runs)
        )
    if not_after > plan.not_after:
        raise ApprovalRefused(
            "approval_exceeds_plan",
            expected=f"not after {print_time(plan.not_after)}",
            got=print_time(not_after),
        )


def sign_approval(  # noqa: PLR0917 - the fields of the statement, in its order
    plan: Plan,
    role: str,
    signing_key: ec.EllipticCurvePrivateKey,
    nonce: bytes,
    max_runs: int,
    not_after: datetime,
) -> bytes:
    """Approve a plan: the envelope's bytes. `nonce` is 32 fresh random bytes."""
    if role not in APPROVING_ROLES:
        raise ApprovalRefused("approval_role_mismatch", expected=" or ".join(APPROVING_ROLES))
    if len(nonce) != NONCE_SIZE:
        raise ApprovalRefused("approval_nonce", expected=f"{NONCE_SIZE} bytes")
    _refuse_past_plan(plan, max_runs, not_after)
    predicate: dict[str, Any] = {
        "role": role,
        "decision": APPROVE,
        "nonce": nonce.hex(),
        "max_runs": max_runs,
        "not_after": print_time(not_after),
    }
    statement = Statement((("plan", plan.digest),), PLAN_APPROVAL_TYPE, predicate)
    envelope = sign_envelope(statement.to_bytes(), signing_key)
    if envelope.keyid != plan.party(role).key_id:
        raise ApprovalRefused("approval_foreign_key", expected=f"the plan's key of {role}")
    return envelope.to_bytes()


def _signer(envelope: Envelope, plan: Plan) -> Party:
    for party in plan.parties:
        if party.key_id == envelope.keyid:
            return party
    raise ApprovalRefused(
        "approval_foreign_key", expected="a key named in the plan", got=envelope.keyid
    )


def verify_approval(envelope: bytes, plan: Plan, now: datetime) -> Approval:
    """Verify one approval of `plan` at `now`.

    In this order: shape, key named in the plan, signature, role, plan digest,
    bounds, expiry.  Shape errors are `DocumentRefused`, all others `ApprovalRefused`.
    """
    parsed = parse_envelope(envelope, max_payload=_MAX_PAYLOAD)
    party = _signer(parsed, plan)
    try:
        verified = verify_envelope(parsed, party.signing_key)
    except DocumentRefused:
        raise ApprovalRefused(
            "approval_signature", expected=f"a signature by the plan's {party.role}"
        ) from None
    statement = read_statement(
        verified.payload, PLAN_APPROVAL_TYPE, ("plan",), max_bytes=_MAX_PAYLOAD
    )
    fields = Fields(statement.predicate, "approval")
    role = fields.constant("role", *ROLES)
    fields.constant("decision", APPROVE)
    approval = Approval(
        role=role,
        plan=statement.subject[0][1],
        nonce=fields.hex("nonce", NONCE_SIZE),
        max_runs=fields.integer("max_runs", 1, MAX_RUNS),
        not_after=parse_time(fields.text("not_after", max_length=20)),
        envelope=envelope,
    )
    fields.done()
    if role != party.role or role not in APPROVING_ROLES:
        raise ApprovalRefused("approval_role_mismatch", expected=party.role, got=role)
    if approval.plan != plan.digest:
        raise ApprovalRefused("approval_other_plan", expected=plan.digest, got=approval.plan)
    _refuse_past_plan(plan, approval.max_runs, approval.not_after)
    _refuse_expired(approval, now)
    return approval


def verify_approvals(envelopes: Sequence[bytes], plan: Plan, now: datetime) -> Approvals:
    """Verify the quorum: exactly one approval of each approving role, none else.

    The plan itself must not have expired.
    """
    plan.refuse_expired(now)
    by_role: dict[str, Approval] = {}
    for envelope in envelopes:
        approval = verify_approval(envelope, plan, now)
        if approval.role in by_role:
            raise ApprovalRefused("approval_duplicate", expected=f"one approval of {approval.role}")
        by_role[approval.role] = approval
    for role in APPROVING_ROLES:
        if role not in by_role:
            raise ApprovalRefused("approval_missing", expected=f"an approval of {role}")
    return Approvals(by_role["model_owner"], by_role["evaluator"])
