"""The red team inside real compartments: every attempt is stopped, in the way expected."""

import functools

import pytest

from enclave.workload.isolation.probes.registry import PROBES, probes_for
from tests.isolation.harness import AS_ROOT, launch

KINDS = ("sandbox", "model_host", "gate")
STOPPED = {"refused", "killed", "limited"}


@pytest.fixture(scope="module")
def selftests(tmp_path_factory):
    @functools.cache
    def run(user):
        ended = launch(tmp_path_factory.mktemp("w") / ".." / f"u{user}", "selftest.py", user=user)
        assert ended.status == 0, ended.stderr
        return ended.last

    for user in (False, True):
        (tmp_path_factory.getbasetemp() / f"u{user}").mkdir()
    return run


@pytest.fixture(params=[False, True] if AS_ROOT else [False], ids=str)
def told(selftests, request):
    return selftests(request.param)


def test_enough_probes(told):
    assert len(probes_for("sandbox")) >= 80
    assert told["tried"] == told["refused"] == len(told["probes"])
    assert {probe["id"] for probe in told["probes"]} >= set(PROBES)


@pytest.mark.parametrize("kind", KINDS)
def test_none_is_open(told, kind):
    rows = [probe for probe in told["probes"] if probe["kind"] == kind]
    assert len(rows) >= 40
    wrong = [row for row in rows if row["outcome"] != row["expected"]]
    assert wrong == []
    assert {row["outcome"] for row in rows} <= STOPPED


def test_a_hidden_tripwire_ends_the_compartment(told):
    (row,) = [probe for probe in told["probes"] if probe["id"] == "hidden_tripwire"]
    assert row["outcome"] == "killed"


def test_quick_and_repeatable(told):
    # measured 0.7 s on two cores
    assert told["seconds"] < 5
    assert told["profile_digest"] == told["again"]
    assert len(told["profile_digest"]) == 64


def test_tiers(selftests):
    if AS_ROOT:
        whole = selftests(False)
        assert (whole["tier"], whole["missing"], whole["demand"]) == ("T2", [], "")
    lower = selftests(AS_ROOT)
    assert (lower["tier"], lower["missing"]) == ("T1", ["own_uid"])
    assert lower["demand"] == "tier_too_low"


@pytest.mark.parametrize("kind", ["model_host", "gate"])
def test_tripwires_of_the_other_compartments(kind, tmp_path):
    """No fork there: each killing probe costs a compartment of its own, and says which call."""
    directory = tmp_path / "w"
    directory.mkdir()
    ended = launch(directory, "tripwires.py", kind)
    assert ended.status == 0, ended.stderr
    expected = {probe.id: [probe.call] for probe in probes_for(kind, killing=True)}
    assert len(expected) >= 20
    assert ended.last["tripped"] == expected
    assert set(ended.last["codes"].values()) == {"tripwire"}
    assert ended.last["told"] == {}
