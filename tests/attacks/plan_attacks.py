"""Attacks on the plan and on the policies it pins."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from attestation.errors import MalformedPolicy
from enclave.clients.evaluator.suite import review_bundle
from enclave.clients.model_owner.model import review_code, review_engine
from enclave.clients.party.approving import review_plan
from enclave.clients.party.errors import ClientRefused
from enclave.clients.party.plan_directory import (
    PlanDirectory,
    read_plan_directory,
    write_plan_directory,
)
from enclave.clients.party.plan_draft import write_plan
from enclave.core.canonical import digest_bytes, print_canonical
from enclave.core.errors import ApprovalRefused, DocumentRefused, PlanRefused, ReleaseRefused
from enclave.core.plan import parse_plan
from enclave.workload.broker.plans import load_plan
from tests.attacks.acceptance import EVALUATOR, HOST, MODEL_OWNER, Step, Table
from tests.attacks.documents import DENY_ALL, PRODUCTION, UNSAFE_SIMULATED, authored, result_policy
from tests.attacks.scene import Stage

ATTACKS = Table()


def written(stage: Stage, directory: PlanDirectory) -> Path:
    folder = stage.folder / "plan"
    write_plan_directory(folder, directory)
    return folder


def edited(stage: Stage, edit: Callable[[dict[str, Any]], object]) -> Path:
    """The plan's folder as the host can rewrite it: canonical bytes, edited."""
    folder = written(stage, stage.scene.directory)
    document = json.loads((folder / "plan.json").read_bytes())
    edit(document)
    (folder / "plan.json").write_bytes(print_canonical(document))
    return folder


def flipped_title(stage: Stage) -> PlanDirectory:
    """One bit of the plan's bytes flipped; it still is a well-formed plan."""
    directory = stage.scene.directory
    data = bytearray(directory.plan.to_bytes())
    data[data.index(b"Sums")] ^= 0x04
    return PlanDirectory(parse_plan(bytes(data)), directory.documents)


@ATTACKS.add(
    "plan-byte-flipped",
    by=HOST,
    covers="a byte flipped in the plan after approval",
    error=ApprovalRefused,
    code="approval_other_plan",
)
def plan_byte_flipped(stage: Stage) -> Step:
    approval = stage.approval(EVALUATOR)
    workload = stage.workload(flipped_title(stage))
    return lambda: workload.broker.submit_approval(workload.plan, EVALUATOR, approval)


@ATTACKS.add(
    "plan-byte-flipped-malformed",
    by=HOST,
    covers="a byte flipped in the plan after approval",
    error=DocumentRefused,
    code="document_not_json",
)
def plan_byte_flipped_malformed(stage: Stage) -> Step:
    folder = written(stage, stage.scene.directory)
    data = bytearray((folder / "plan.json").read_bytes())
    data[0] ^= 0x01
    (folder / "plan.json").write_bytes(data)
    return lambda: load_plan(folder)


@ATTACKS.add("plan-respelled", by=HOST, error=DocumentRefused, code="document_not_canonical")
def plan_respelled(stage: Stage) -> Step:
    folder = written(stage, stage.scene.directory)
    document = json.loads((folder / "plan.json").read_bytes())
    (folder / "plan.json").write_text(json.dumps(document, indent=1))
    return lambda: load_plan(folder)


@ATTACKS.add(
    "plan-unknown-field", by=EVALUATOR, error=DocumentRefused, code="document_field_unknown"
)
def plan_unknown_field(stage: Stage) -> Step:
    folder = edited(stage, lambda plan: plan.update(per_item_output=True))
    return lambda: read_plan_directory(folder)


@ATTACKS.add("plan-no-isolation", by=HOST, error=DocumentRefused, code="document_field_value")
def plan_no_isolation(stage: Stage) -> Step:
    folder = edited(stage, lambda plan: plan["isolation"].update(min_tier="T0"))
    return lambda: load_plan(folder)


@ATTACKS.add(
    "plan-one-key-two-roles", by=MODEL_OWNER, error=PlanRefused, code="plan_party_not_distinct"
)
def plan_one_key_two_roles(stage: Stage) -> Step:
    key = stage.scene.draft().parties[0].fields()["signing_key"]
    folder = edited(stage, lambda plan: plan["parties"][1].update(signing_key=key))
    return lambda: load_plan(folder)


@ATTACKS.add("plan-two-evaluators", by=EVALUATOR, error=PlanRefused, code="plan_party_not_single")
def plan_two_evaluators(stage: Stage) -> Step:
    second = stage.scene.stranger.keys.party.fields()
    folder = edited(stage, lambda plan: plan["parties"].append(second))
    return lambda: load_plan(folder)


@ATTACKS.add("plan-result-key-swapped", by=MODEL_OWNER, error=ClientRefused, code="plan_not_mine")
def plan_result_key_swapped(stage: Stage) -> Step:
    """The owner writes a plan in which the evaluator's views go to a key of the owner's."""
    evaluator = stage.scene.evaluator.keys.party
    swapped = replace(evaluator, recipient_key=stage.scene.stranger.keys.party.recipient_key)
    owner = stage.scene.owner.keys.party
    directory = write_plan(stage.scene.draft(parties=[owner, swapped]))
    side = stage.side(EVALUATOR)
    return lambda: review_plan(side.state, side.keys, directory, now=stage.scene.now)


@ATTACKS.add("plan-expired", by=EVALUATOR, error=PlanRefused, code="plan_expired")
def plan_expired(stage: Stage) -> Step:
    side, late = stage.side(MODEL_OWNER), stage.scene.now + timedelta(days=31)
    return lambda: review_plan(side.state, side.keys, stage.scene.directory, now=late)


@ATTACKS.add("plan-document-swapped", by=HOST, error=PlanRefused, code="plan_document_digest")
def plan_document_swapped(stage: Stage) -> Step:
    folder = written(stage, stage.scene.directory)
    digest = stage.scene.directory.plan.result_policy
    other = print_canonical(json.loads(result_policy(release_bytes=8192)))
    (folder / "documents" / f"{digest}.json").write_bytes(other)
    return lambda: load_plan(folder)


@ATTACKS.add("plan-document-withheld", by=HOST, error=PlanRefused, code="plan_document_missing")
def plan_document_withheld(stage: Stage) -> Step:
    folder = written(stage, stage.scene.directory)
    (folder / "documents" / f"{stage.scene.directory.plan.attestation_policy}.json").unlink()
    return lambda: load_plan(folder)


@ATTACKS.add("plan-over-budget", by=EVALUATOR, error=ReleaseRefused, code="release_budget_exceeded")
def plan_over_budget(stage: Stage) -> Step:
    """A metric with steps so fine that it could carry prompts or weights out."""
    document = json.loads(result_policy(max_bits=64))
    document["metrics"][0]["step"] = "0.000000001"
    policy = print_canonical(document)
    folder = edited(stage, lambda plan: plan.update(result_policy=digest_bytes(policy)))
    (folder / "documents" / f"{digest_bytes(policy)}.json").write_bytes(policy)
    return lambda: load_plan(folder)


@ATTACKS.add(
    "plan-template-changed",
    by=EVALUATOR,
    covers="template changed",
    error=ClientRefused,
    code="plan_other_template",
)
def plan_template_changed(stage: Stage) -> Step:
    card = replace(stage.scene.draft().cards["model"], template_sha256="ee" * 32)
    draft = stage.scene.draft(cards={**stage.scene.draft().cards, "model": card})
    directory = write_plan(draft)
    return lambda: review_engine(stage.side(MODEL_OWNER).state, directory)


@ATTACKS.add("plan-other-code", by=EVALUATOR, error=ClientRefused, code="plan_other_bundle")
def plan_other_code(stage: Stage) -> Step:
    """The evaluator shows one scorer and commits to another."""
    shown = stage.folder / "shown"
    shown.mkdir()
    (shown / "score.py").write_text("def evaluate(model, suite):\n    return {'harmless': 1}\n")
    return lambda: review_code(stage.scene.directory, shown)


@ATTACKS.add("plan-false-salt", by=MODEL_OWNER, error=ClientRefused, code="plan_other_bundle_terms")
def plan_false_salt(stage: Stage) -> Step:
    card = replace(stage.scene.draft().cards["bundle"], salt="00" * 32)
    draft = stage.scene.draft(cards={**stage.scene.draft().cards, "bundle": card})
    directory = write_plan(draft)
    return lambda: review_bundle(stage.side(EVALUATOR).state, directory)


# Policies.


@ATTACKS.add(
    "policy-unknown-key",
    by=MODEL_OWNER,
    covers="policy with an unknown key",
    error=MalformedPolicy,
    code="policy_field_unknown",
)
def policy_unknown_key(stage: Stage) -> Step:
    draft = stage.scene.draft(
        attestation_policy=authored(UNSAFE_SIMULATED, allow_debug_in_emergencies=True)
    )
    return lambda: write_plan(draft)


@ATTACKS.add(
    "policy-missing-key",
    by=MODEL_OWNER,
    covers="policy with a missing key",
    error=MalformedPolicy,
    code="policy_field_missing",
)
def policy_missing_key(stage: Stage) -> Step:
    document = json.loads(PRODUCTION.read_bytes())
    del document["kinds"]["sev-snp"]["revocation"]
    draft = stage.scene.draft(attestation_policy=json.dumps(document).encode())
    return lambda: write_plan(draft)


@ATTACKS.add("policy-empty", by=EVALUATOR, error=MalformedPolicy, code="policy_empty")
def policy_empty(stage: Stage) -> Step:
    """An all-of over nothing would accept everything."""
    draft = stage.scene.draft(attestation_policy=authored(DENY_ALL, decision="appraise"))
    return lambda: write_plan(draft)


@ATTACKS.add(
    "policy-simulated-unspoken",
    by=HOST,
    error=MalformedPolicy,
    code="policy_simulated_contradiction",
)
def policy_simulated_unspoken(stage: Stage) -> Step:
    """Simulated evidence let in by a policy that does not say that it is unsafe."""
    draft = stage.scene.draft(attestation_policy=authored(UNSAFE_SIMULATED, unsafe_simulated=False))
    return lambda: write_plan(draft)


@ATTACKS.add("policy-pin-differs", by=EVALUATOR, error=ClientRefused, code="policy_pin_differs")
def policy_pin_differs(stage: Stage) -> Step:
    endpoint = stage.serve(stage.workload().broker)
    pin = PRODUCTION.read_bytes()
    return lambda: stage.connect(MODEL_OWNER, endpoint, policy_pin=pin)


@ATTACKS.add(
    "result-policy-unknown-key",
    by=EVALUATOR,
    covers="policy with an unknown key",
    error=DocumentRefused,
    code="document_field_unknown",
)
def result_policy_unknown_key(stage: Stage) -> Step:
    draft = stage.scene.draft(result_policy=result_policy(free_text=True))
    return lambda: write_plan(draft)


@ATTACKS.add(
    "result-policy-missing-key",
    by=EVALUATOR,
    covers="policy with a missing key",
    error=DocumentRefused,
    code="document_field_missing",
)
def result_policy_missing_key(stage: Stage) -> Step:
    document = json.loads(result_policy())
    del document["metrics"][0]["min_n"]
    draft = stage.scene.draft(result_policy=json.dumps(document).encode())
    return lambda: write_plan(draft)
