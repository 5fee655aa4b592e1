"""One bit flipped at one place after another: no altered document is ever taken for the real one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from attestation.appraise import appraise_evidence, parse_policy, parse_reference_values
from attestation.errors import AttestationError
from attestation.verify import parse_evidence_bundle, verify_evidence
from enclave.clients.party.artifacts import sealed_folder
from enclave.core.approval import verify_approval
from enclave.core.binding import compute_binding
from enclave.core.errors import Refusal
from enclave.core.plan import parse_plan
from enclave.core.sealed import parse_index
from enclave.core.vocabulary import EVALUATOR, MODEL_OWNER
from enclave.workload.service.upload_terms import refuse_other_index
from tests.attacks.grant_attacks import granting
from tests.attacks.scene import Stage


def survivors(data: bytes, accept: Callable[[bytes], object], step: int) -> tuple[int, list[int]]:
    """How many places were tried, and those at which an altered byte was accepted."""
    accept(data)
    places = range(0, len(data), step)
    accepted = []
    for place in places:
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place % 8)
        try:
            accept(bytes(flipped))
        except (Refusal, AttestationError):
            continue
        accepted.append(place)
    return len(places), accepted


def test_plan_under_its_approval(stage: Stage) -> None:
    envelope = stage.approval(EVALUATOR)
    now = stage.scene.now
    count, accepted = survivors(
        stage.scene.directory.plan.to_bytes(),
        lambda data: verify_approval(envelope, parse_plan(data), now),
        3,
    )
    assert count >= 1000
    assert accepted == []


def test_approval(stage: Stage) -> None:
    plan, now = stage.scene.directory.plan, stage.scene.now
    count, accepted = survivors(
        stage.approval(EVALUATOR), lambda data: verify_approval(data, plan, now), 1
    )
    assert count >= 500
    assert accepted == []


def test_evidence(stage: Stage) -> None:
    workload = stage.workload()
    session = stage.connect(MODEL_OWNER, stage.serve(workload.broker))
    directory, now = stage.scene.directory, stage.scene.now
    bundle = stage.scene.genuine.collect_evidence(compute_binding(session.inputs))

    def accept(data: bytes) -> object:
        verified = verify_evidence(parse_evidence_bundle(data), roots=stage.scene.roots, now=now)
        return appraise_evidence(
            verified,
            policy=parse_policy(directory.attestation_policy),
            reference_values=parse_reference_values(directory.reference_values),
            expected_binding=compute_binding(session.inputs),
            now=now,
        )

    count, accepted = survivors(bundle.to_bytes(), accept, 7)
    assert count >= 200
    assert accepted == []


def test_grant(stage: Stage) -> None:
    made = granting(stage)
    grant = made.make()
    live, accepted = made.workload.live, []
    for place in range(0, len(grant), 11):
        flipped = bytearray(grant)
        flipped[place] ^= 1 << (place % 8)
        try:
            accepted.append(live.take_grant(MODEL_OWNER, bytes(flipped)))
        except Refusal:
            continue
    assert accepted == []
    assert live.keys == {}
    assert live.take_grant(MODEL_OWNER, grant) == "model"


@pytest.mark.parametrize("artifact", ["model", "suite", "bundle"])
def test_public_index(stage: Stage, artifact: str) -> None:
    """The host's own file: an altered one is another artifact to the upload store."""
    role = MODEL_OWNER if artifact == "model" else EVALUATOR
    data = (sealed_folder(stage.side(role).state, artifact) / "index.json").read_bytes()
    terms = stage.scene.directory.plan.artifact(artifact)
    count, accepted = survivors(
        data, lambda altered: refuse_other_index(parse_index(altered), artifact, terms), 1
    )
    # Sizes are the host's to say: opening judges them, and a changed one never opens.
    sizes = range(data.index(b'"streams"') + 11, data.index(b"]"))
    assert count >= 150
    assert set(accepted) <= set(sizes)
