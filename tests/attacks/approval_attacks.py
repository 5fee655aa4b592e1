"""Attacks on the approvals: missing, expired, twice, by others, altered."""

from __future__ import annotations

import base64
import json
import os
from datetime import timedelta

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from enclave.clients.party.granting import grant_run
from enclave.core.approval import sign_approval, verify_approvals
from enclave.core.canonical import print_canonical
from enclave.core.dsse import sign_envelope
from enclave.core.errors import (
    ApprovalRefused,
    DocumentRefused,
    GrantRefused,
    RunRefused,
)
from enclave.core.statement import Statement
from enclave.core.times import print_time
from enclave.core.vocabulary import APPROVING_ROLES, PLAN_APPROVAL_TYPE
from tests.attacks.acceptance import EVALUATOR, HOST, MODEL_OWNER, NETWORK, Step, Table
from tests.attacks.scene import Stage, Workload

ATTACKS = Table()
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def submit(workload: Workload, role: str, envelope: bytes) -> Step:
    return lambda: workload.broker.submit_approval(workload.plan, role, envelope)


def signed(stage: Stage, key: ec.EllipticCurvePrivateKey, **changes: object) -> bytes:
    """An approval statement signed by any key, with fields the honest signer would refuse."""
    plan = stage.scene.directory.plan
    predicate = {
        "role": EVALUATOR,
        "decision": "approve",
        "nonce": os.urandom(32).hex(),
        "max_runs": plan.max_runs,
        "not_after": print_time(plan.not_after),
        **changes,
    }
    statement = Statement((("plan", plan.digest),), PLAN_APPROVAL_TYPE, predicate)
    return sign_envelope(statement.to_bytes(), key).to_bytes()


@ATTACKS.add(
    "approval-missing-at-start",
    by=HOST,
    covers="missing approval",
    error=RunRefused,
    code="run_not_ready",
)
def approval_missing_at_start(stage: Stage) -> Step:
    workload = stage.workload(uploaded=True)
    workload.broker.submit_approval(workload.plan, MODEL_OWNER, stage.approval(MODEL_OWNER))
    return lambda: workload.broker.start_run(workload.plan, EVALUATOR)


@ATTACKS.add(
    "approval-missing-at-grant",
    by=EVALUATOR,
    covers="missing approval",
    error=GrantRefused,
    code="grant_approval_missing",
)
def approval_missing_at_grant(stage: Stage) -> Step:
    """Approved at home and granted, but the enclave was never shown the approval."""
    workload = stage.workload()
    stage.approval(EVALUATOR)
    session = stage.connect(EVALUATOR, stage.serve(workload.broker))
    return lambda: grant_run(stage.side(EVALUATOR).state, session, now=stage.scene.now)


@ATTACKS.add(
    "approval-missing-in-quorum",
    by=MODEL_OWNER,
    covers="missing approval",
    error=ApprovalRefused,
    code="approval_missing",
)
def approval_missing_in_quorum(stage: Stage) -> Step:
    only = [stage.approval(MODEL_OWNER)]
    return lambda: verify_approvals(only, stage.scene.directory.plan, stage.scene.now)


@ATTACKS.add(
    "approval-expired",
    by=HOST,
    covers="expired approval",
    error=ApprovalRefused,
    code="approval_expired",
)
def approval_expired(stage: Stage) -> Step:
    workload = stage.workload()
    approval = stage.approval(EVALUATOR, not_after=stage.scene.now + timedelta(days=1))
    workload.now += timedelta(days=2)
    return submit(workload, EVALUATOR, approval)


@ATTACKS.add(
    "approval-expired-before-start",
    by=HOST,
    covers="expired approval",
    error=ApprovalRefused,
    code="approval_expired",
)
def approval_expired_before_start(stage: Stage) -> Step:
    workload = stage.workload(uploaded=True)
    endpoint = stage.serve(workload.broker)
    soon = stage.scene.now + timedelta(days=1)
    for role in APPROVING_ROLES:
        approval = stage.approval(role, not_after=soon)
        workload.broker.submit_approval(workload.plan, role, approval)
        stage.grant(role, endpoint)
    workload.now += timedelta(days=1, seconds=1)
    return lambda: workload.broker.start_run(workload.plan, MODEL_OWNER)


@ATTACKS.add(
    "approval-expired-host-clock-back",
    by=HOST,
    covers="expired approval",
    error=ApprovalRefused,
    code="approval_expired",
)
def approval_expired_host_clock_back(stage: Stage) -> Step:
    """The host sets the enclave's clock back: the party's own clock still says no."""
    workload = stage.workload()
    soon = stage.scene.now + timedelta(days=1)
    approval = stage.approval(MODEL_OWNER, not_after=soon)
    workload.broker.submit_approval(workload.plan, MODEL_OWNER, approval)
    session = stage.connect(MODEL_OWNER, stage.serve(workload.broker))
    late = soon + timedelta(seconds=1)
    return lambda: grant_run(stage.side(MODEL_OWNER).state, session, now=late)


@ATTACKS.add(
    "approval-duplicated",
    by=EVALUATOR,
    covers="duplicated approval",
    error=ApprovalRefused,
    code="approval_duplicate",
)
def approval_duplicated(stage: Stage) -> Step:
    """Two valid approvals of one party, with other terms."""
    workload = stage.workload(approved=True)
    plan, keys = stage.scene.directory.plan, stage.side(EVALUATOR).keys
    second = sign_approval(plan, EVALUATOR, keys.signing_key, b"2" * 32, 1, plan.not_after)
    return submit(workload, EVALUATOR, second)


@ATTACKS.add(
    "approval-duplicated-in-quorum",
    by=MODEL_OWNER,
    covers="duplicated approval",
    error=ApprovalRefused,
    code="approval_duplicate",
)
def approval_duplicated_in_quorum(stage: Stage) -> Step:
    twice = [stage.approval(MODEL_OWNER)] * 2
    return lambda: verify_approvals(twice, stage.scene.directory.plan, stage.scene.now)


@ATTACKS.add(
    "approval-foreign-key",
    by=NETWORK,
    covers="foreign approval",
    error=ApprovalRefused,
    code="approval_foreign_key",
)
def approval_foreign_key(stage: Stage) -> Step:
    stranger = stage.scene.stranger.keys
    return submit(stage.workload(), EVALUATOR, signed(stage, stranger.signing_key))


@ATTACKS.add(
    "approval-claims-other-role",
    by=MODEL_OWNER,
    covers="foreign approval",
    error=ApprovalRefused,
    code="approval_role_mismatch",
)
def approval_claims_other_role(stage: Stage) -> Step:
    """The owner approves in the evaluator's name."""
    owner = stage.side(MODEL_OWNER).keys
    return submit(stage.workload(), EVALUATOR, signed(stage, owner.signing_key))


@ATTACKS.add(
    "approval-of-the-other-party",
    by=EVALUATOR,
    covers="foreign approval",
    error=ApprovalRefused,
    code="approval_role_mismatch",
)
def approval_of_the_other_party(stage: Stage) -> Step:
    """The evaluator hands in the owner's genuine approval."""
    return submit(stage.workload(), EVALUATOR, stage.approval(MODEL_OWNER))


@ATTACKS.add(
    "approval-of-another-plan",
    by=HOST,
    covers="foreign approval",
    error=ApprovalRefused,
    code="approval_other_plan",
)
def approval_of_another_plan(stage: Stage) -> Step:
    approval = stage.approval(EVALUATOR, stage.scene.other_directory)
    return submit(stage.workload(), EVALUATOR, approval)


@ATTACKS.add(
    "approval-signature-of-another", by=HOST, error=ApprovalRefused, code="approval_signature"
)
def approval_signature_of_another(stage: Stage) -> Step:
    """The evaluator's key is named, the signature is a stranger's."""
    document = json.loads(signed(stage, stage.scene.stranger.keys.signing_key))
    document["signatures"][0]["keyid"] = stage.scene.evaluator.keys.party.key_id
    return submit(stage.workload(), EVALUATOR, print_canonical(document))


@ATTACKS.add("approval-terms-edited", by=HOST, error=ApprovalRefused, code="approval_signature")
def approval_terms_edited(stage: Stage) -> Step:
    document = json.loads(stage.approval(EVALUATOR, max_runs=1))
    statement = json.loads(base64.b64decode(document["payload"]))
    statement["predicate"]["max_runs"] = 2
    document["payload"] = base64.b64encode(print_canonical(statement)).decode()
    return submit(stage.workload(), EVALUATOR, print_canonical(document))


@ATTACKS.add("approval-malleated", by=NETWORK, error=ApprovalRefused, code="approval_signature")
def approval_malleated(stage: Stage) -> Step:
    """The other valid ECDSA signature over the same bytes: would be a second envelope."""
    document = json.loads(stage.approval(EVALUATOR))
    r, s = decode_dss_signature(base64.b64decode(document["signatures"][0]["sig"]))
    high = encode_dss_signature(r, _P256_ORDER - s)
    document["signatures"][0]["sig"] = base64.b64encode(high).decode()
    return submit(stage.workload(), EVALUATOR, print_canonical(document))


@ATTACKS.add("approval-two-signatures", by=HOST, error=DocumentRefused, code="document_field_value")
def approval_two_signatures(stage: Stage) -> Step:
    document = json.loads(stage.approval(EVALUATOR))
    document["signatures"] *= 2
    return submit(stage.workload(), EVALUATOR, print_canonical(document))


@ATTACKS.add("approval-widened", by=EVALUATOR, error=ApprovalRefused, code="approval_exceeds_plan")
def approval_widened(stage: Stage) -> Step:
    """An approval for more runs than the plan has."""
    evaluator = stage.side(EVALUATOR).keys
    return submit(stage.workload(), EVALUATOR, signed(stage, evaluator.signing_key, max_runs=9))


@ATTACKS.add("approval-that-declines", by=HOST, error=DocumentRefused, code="document_field_value")
def approval_that_declines(stage: Stage) -> Step:
    """A signed `decline` handed in as an approval."""
    evaluator = stage.side(EVALUATOR).keys
    declined = signed(stage, evaluator.signing_key, decision="decline")
    return submit(stage.workload(), EVALUATOR, declined)
