"""Attacks with evidence of the wrong machine, the wrong root, the wrong party."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from attestation.collect import SimulatedAttester, reference_values_for_simulated
from attestation.errors import (
    EndorsementUnavailable,
    MalformedEvidence,
    PolicyRefused,
    SignatureInvalid,
)
from attestation.parse.trust_roots import parse_trust_roots
from enclave.clients.party.granting import grant_run
from enclave.clients.party.plan_directory import PlanDirectory
from enclave.clients.party.plan_draft import EvidencePolicy, write_plan
from enclave.core.binding import party_binding
from enclave.core.canonical import print_canonical
from enclave.core.errors import GrantRefused, SessionRefused
from enclave.wire.messages import AttestReply
from enclave.workload.service.facade import EnclaveFacade
from tests.attacks.acceptance import EVALUATOR, HOST, MODEL_OWNER, Step, Table
from tests.attacks.documents import DENY_ALL, MEASUREMENT, PRODUCTION, UNSAFE_SIMULATED
from tests.attacks.relay import Relay
from tests.attacks.scene import Stage, Workload

ATTACKS = Table()
OTHER_MEASUREMENT = b"\xee" * 48


def connect_to(stage: Stage, attester: SimulatedAttester) -> Step:
    """The model owner connects to an enclave with this attester."""
    endpoint = stage.serve(stage.workload(attester=attester).broker)
    return lambda: stage.connect(MODEL_OWNER, endpoint)


def connect_under(stage: Stage, policy: bytes) -> Step:
    """The model owner connects under a plan that pins another attestation policy."""
    directory = write_plan(stage.scene.draft(attestation_policy=policy))
    endpoint = stage.serve(stage.workload(directory).broker)
    return lambda: stage.connect(MODEL_OWNER, endpoint, directory)


def connect_with_evidence(stage: Stage, edit: Callable[[dict[str, Any]], object]) -> Step:
    """The host edits the evidence (its first item's payload) on the way."""
    workload = stage.workload()

    def answer(plan: str, role: str, nonce: bytes) -> AttestReply:
        reply = workload.broker.attest(plan, role, nonce)
        bundle = json.loads(reply.evidence)
        payload = json.loads(base64.b64decode(bundle["items"][0]["payload"]))
        edit(payload)
        bundle["items"][0]["payload"] = base64.b64encode(print_canonical(payload)).decode()
        return replace(reply, evidence=print_canonical(bundle))

    endpoint = stage.serve(cast("EnclaveFacade", Relay(workload.broker, answer)))
    return lambda: stage.connect(MODEL_OWNER, endpoint)


@ATTACKS.add(
    "simulated-under-production",
    by=HOST,
    covers="simulated evidence under a production policy",
    error=PolicyRefused,
    code="simulated_refused",
)
def simulated_under_production(stage: Stage) -> Step:
    return connect_under(stage, PRODUCTION.read_bytes())


@ATTACKS.add("evidence-under-deny-all", by=HOST, error=PolicyRefused, code="policy_denies_all")
def evidence_under_deny_all(stage: Stage) -> Step:
    return connect_under(stage, DENY_ALL.read_bytes())


@ATTACKS.add("evidence-own-root", by=HOST, error=SignatureInvalid, code="simulated_chain")
def evidence_own_root(stage: Stage) -> Step:
    """The host makes a root of its own."""
    return connect_to(stage, stage.scene.attester())


@ATTACKS.add("evidence-no-root", by=HOST, error=EndorsementUnavailable, code="trust_root_missing")
def evidence_no_root(stage: Stage) -> Step:
    """A party that brought no root accepts nothing."""
    endpoint = stage.serve(stage.workload().broker)
    return lambda: stage.connect(MODEL_OWNER, endpoint, roots=parse_trust_roots())


@ATTACKS.add("evidence-other-image", by=HOST, error=PolicyRefused, code="simulated_measurement")
def evidence_other_image(stage: Stage) -> Step:
    """A genuine machine with other software on it."""
    identity = stage.scene.genuine.identity_pem()
    return connect_to(stage, stage.scene.attester(OTHER_MEASUREMENT, identity_pem=identity))


@ATTACKS.add("evidence-debug-on", by=HOST, error=PolicyRefused, code="simulated_debug")
def evidence_debug_on(stage: Stage) -> Step:
    identity = stage.scene.genuine.identity_pem()
    return connect_to(stage, stage.scene.attester(debug=True, identity_pem=identity))


@ATTACKS.add("evidence-old-firmware", by=HOST, error=PolicyRefused, code="simulated_tcb")
def evidence_old_firmware(stage: Stage) -> Step:
    identity = stage.scene.genuine.identity_pem()
    return connect_to(stage, stage.scene.attester(tcb=0, identity_pem=identity))


@ATTACKS.add(
    "evidence-expired-certificate",
    by=HOST,
    error=EndorsementUnavailable,
    code="simulated_leaf_expired",
)
def evidence_expired_certificate(stage: Stage) -> Step:
    endpoint = stage.serve(stage.workload().broker)
    late = stage.scene.now + timedelta(days=365)
    return lambda: stage.connect(MODEL_OWNER, endpoint, now=late)


@ATTACKS.add("evidence-edited", by=HOST, error=SignatureInvalid, code="simulated_signature")
def evidence_edited(stage: Stage) -> Step:
    """Evidence of other software, edited to say the agreed measurement."""
    return connect_with_evidence(stage, lambda report: report.update(tcb=report["tcb"] + 1))


@ATTACKS.add(
    "evidence-unknown-claim", by=HOST, error=MalformedEvidence, code="simulated_field_unknown"
)
def evidence_unknown_claim(stage: Stage) -> Step:
    return connect_with_evidence(stage, lambda report: report.update(trusted=True))


@ATTACKS.add(
    "evidence-kind-renamed", by=HOST, error=EndorsementUnavailable, code="kind_not_supported"
)
def evidence_kind_renamed(stage: Stage) -> Step:
    """Simulated evidence called hardware evidence."""
    workload = stage.workload()

    def answer(plan: str, role: str, nonce: bytes) -> AttestReply:
        reply = workload.broker.attest(plan, role, nonce)
        return replace(reply, evidence=reply.evidence.replace(b'"simulated"', b'"sev-snp"'))

    endpoint = stage.serve(cast("EnclaveFacade", Relay(workload.broker, answer)))
    return lambda: stage.connect(MODEL_OWNER, endpoint)


# Evidence of the parties themselves.


def demanding(stage: Stage) -> PlanDirectory:
    """A plan that asks the model owner for evidence of its own machine."""
    own = EvidencePolicy(
        "simulated", UNSAFE_SIMULATED.read_bytes(), reference_values_for_simulated(MEASUREMENT)
    )
    return write_plan(stage.scene.draft(party_evidence={MODEL_OWNER: own}))


def show(stage: Stage, workload: Workload, evidence: bytes, role: str = MODEL_OWNER) -> Step:
    return lambda: workload.broker.submit_party_evidence(workload.plan, role, evidence)


def bound(stage: Stage, workload: Workload, **changes: Any) -> bytes:
    """The owner's evidence over the workload's challenge, with inputs replaced."""
    terms = {
        "plan": workload.plan,
        "session": workload.live.state.session,
        "role": MODEL_OWNER,
        "signing_key": stage.scene.owner.keys.party.signing_key,
        "challenge": workload.live.state.challenge,
        **changes,
    }
    attester = terms.pop("attester", stage.scene.genuine)
    return attester.collect_evidence(party_binding(**terms)).to_bytes()


@ATTACKS.add(
    "party-evidence-old-challenge", by=MODEL_OWNER, error=PolicyRefused, code="binding_mismatch"
)
def party_evidence_old_challenge(stage: Stage) -> Step:
    workload = stage.workload(demanding(stage))
    return show(stage, workload, bound(stage, workload, challenge=b"o" * 32))


@ATTACKS.add(
    "party-evidence-borrowed", by=MODEL_OWNER, error=PolicyRefused, code="binding_mismatch"
)
def party_evidence_borrowed(stage: Stage) -> Step:
    """A sound machine of somebody else's vouches for somebody else's key."""
    workload = stage.workload(demanding(stage))
    other = stage.scene.stranger.keys.party.signing_key
    return show(stage, workload, bound(stage, workload, signing_key=other))


@ATTACKS.add(
    "party-evidence-own-root", by=MODEL_OWNER, error=SignatureInvalid, code="simulated_chain"
)
def party_evidence_own_root(stage: Stage) -> Step:
    workload = stage.workload(demanding(stage))
    return show(stage, workload, bound(stage, workload, attester=stage.scene.attester()))


@ATTACKS.add(
    "party-evidence-unasked", by=EVALUATOR, error=SessionRefused, code="party_evidence_unasked"
)
def party_evidence_unasked(stage: Stage) -> Step:
    workload = stage.workload(demanding(stage))
    return show(stage, workload, bound(stage, workload), EVALUATOR)


@ATTACKS.add(
    "party-evidence-other-kind", by=MODEL_OWNER, error=SessionRefused, code="party_evidence_kind"
)
def party_evidence_other_kind(stage: Stage) -> Step:
    workload = stage.workload(demanding(stage))
    evidence = bound(stage, workload).replace(b'"simulated"', b'"sev-snp"')
    return show(stage, workload, evidence)


@ATTACKS.add(
    "party-evidence-withheld",
    by=MODEL_OWNER,
    error=GrantRefused,
    code="grant_party_evidence_missing",
)
def party_evidence_withheld(stage: Stage) -> Step:
    """A changed client that grants without having shown its machine."""
    directory = demanding(stage)
    workload = stage.workload(directory)
    workload.broker.submit_approval(
        workload.plan, MODEL_OWNER, stage.approval(MODEL_OWNER, directory)
    )
    session = stage.connect(MODEL_OWNER, stage.serve(workload.broker), directory)
    return lambda: grant_run(stage.side(MODEL_OWNER).state, session, now=stage.scene.now)
