"""Nobody attacks: the same functions let the honest parties through."""

from __future__ import annotations

from enclave.core.vocabulary import APPROVING_ROLES, ARTIFACTS
from tests.attacks.model_attacks import load
from tests.attacks.scene import Stage
from tests.attacks.tiny_llama import write_tiny_llama


def test_honest_parties_reach_the_run(stage: Stage) -> None:
    workload = stage.workload(uploaded=True)
    endpoint = stage.serve(workload.broker)
    for role in APPROVING_ROLES:
        session = stage.connect(role, endpoint)
        session.client.submit_approval(stage.approval(role))
    for role in APPROVING_ROLES:
        report = stage.grant(role, endpoint)
        assert (report.run, report.spent) == (1, 1)
    view = workload.broker.view_session(workload.plan)
    assert view.missing == ()
    assert view.grants == ARTIFACTS
    assert workload.run_to_its_end() == 1
    assert workload.broker.view_session(workload.plan).runs_spent == 1


def test_honest_model_loads(stage: Stage) -> None:
    answer = load(stage, write_tiny_llama(stage.folder / "model"))
    assert answer["op"] == "loaded"
    stage.scene.close()  # a host serves one model
