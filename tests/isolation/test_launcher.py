"""The launcher with real compartments: as root (own uids) and as an ordinary user."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.isolation.harness import AS_ROOT, BROKERS, launch, launcher_command

WHO = (
    [
        pytest.param(False, id="root", marks=pytest.mark.root),
        pytest.param(True, id="user"),
    ]
    if AS_ROOT
    else [pytest.param(False, id="user")]
)


@pytest.fixture(params=WHO)
def user(request):
    return request.param


def inside(tmp_path):
    """A directory of its own, which the harness may give to another user."""
    directory = tmp_path / "w"
    directory.mkdir()
    return directory


def told(ended):
    assert ended.status == 0, ended.stderr
    return ended.last


def test_compartments(tmp_path, user):
    facts = told(launch(inside(tmp_path), "compartments.py", user=user))
    assert facts["killed"] == ["killed", 137]
    # under root the broker sees no process but its own
    assert facts["first_to_go"] == (1 if user or not AS_ROOT else 0)
    assert facts["exited"] == ["exited", 0]
    assert facts["message"] == {"event": "probe", "id": "tcp4", "outcome": "refused"}
    assert facts["listener"] == ["127.0.0.1", 8000]
    assert facts["reached_from_outside"] is False
    assert facts["hostile_input"] == "input_path"
    assert facts["hostile_input_end"] == ["exited", 70]
    assert facts["limit_wall"] == ["limit_wall", 137]
    assert facts["limit_cpu"] == ["limit_cpu", 137]
    assert facts["leaked_descriptors"] == 0
    assert facts["threads"] == 2
    # measured 50 ms on two cores; other work may run beside
    assert facts["quickest_milliseconds"] < 300


def test_requests_outside_the_closed_table(tmp_path, user):
    facts = told(launch(inside(tmp_path), "refused.py", user=user))
    assert facts["codes"] == {
        "unknown_kind": "compartment_kind",
        "broker_kind": "compartment_kind",
        "probe_without_kind": "compartment_kind",
        "kind_with_probe": "compartment_kind",
        "missing_descriptor": "descriptors_unexpected",
        "foreign_descriptor": "descriptors_unexpected",
        "renamed_descriptor": "descriptors_unexpected",
        "memory_of_sandbox": "memory_unknown",
        "memory_not_mounted": "memory_unknown",
        "limit_above_ceiling": "document_field_value",
        "limit_zero": "document_field_value",
        "extra_field": "document_field_unknown",
        "no_operation": "document_field_value",
        "session_path": "memory_session",
        "session_name": "memory_session",
        "memory_size": "document_field_value",
        "memory_absent": "memory_unknown",
        "descriptor_beside_kill": "descriptors_unexpected",
    }
    assert facts["uid"] != 0 or not AS_ROOT


@pytest.mark.root
@pytest.mark.skipif(not AS_ROOT, reason="tmpfs noswap belongs to root")
def test_memory_is_private_and_never_swapped(tmp_path):
    facts = told(launch(tmp_path, "memory.py"))
    assert {"noswap", "nosuid", "nodev", "noexec"} <= set(facts["options"])
    assert facts["mode"] == "0o700"
    assert facts["owner"] is True
    assert facts["twice"] == "memory_exists"
    assert facts["busy"] == "memory_busy"
    assert facts["again"] == "memory_unknown"
    assert facts["gone"] is True
    # the broker's world holds the runtime and nothing of the host
    needed = {Path(p).resolve().parts[1] for p in (sys.prefix, sys.base_prefix, __file__, tmp_path)}
    foreign = {"home", "var", "opt", "boot", "mnt", "srv"} - needed
    assert foreign
    assert not foreign & set(facts["listing"])


def test_memory_of_a_user_is_refused_by_name(tmp_path):
    ended = launch(inside(tmp_path), "memory_as_user.py", user=True)
    assert told(ended) == {"code": "memory_needs_root"}


def test_status_and_environment_of_the_broker(tmp_path):
    ended = launch(tmp_path, "environment.py", "argument")
    assert ended.status == 7
    facts = ended.last
    assert facts["argv"] == ["argument"]
    assert set(facts["environment"]) == {
        *("DOUBLEBLIND_LAUNCHER", "HOME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE", "TZ"),
    }
    assert facts["no_new_privs"] == "1"
    assert facts["capabilities"] == ["0000000000000000"] * 5 or not AS_ROOT
    assert facts["groups"] == [] or not AS_ROOT
    assert facts["descriptors"] <= 5
    assert (tmp_path / "state" / "kept").read_text() == "kept"
    assert os.listdir(tmp_path / "run") == ([] if AS_ROOT else ["etc"])


def test_a_broker_that_does_not_exist(tmp_path):
    command = launcher_command(tmp_path, "environment.py")
    command[-1] = str(BROKERS / "absent.py")
    command[-3] = "/usr/bin/absent-interpreter"
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 70
    assert "spawn_failed" in done.stderr


def test_stop_signal_ends_the_broker_politely(tmp_path):
    command = launcher_command(tmp_path, "polite.py")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert json.loads(process.stdout.readline()) == {"ready": True}
        process.send_signal(signal.SIGTERM)
        assert json.loads(process.stdout.readline()) == {"stopped": True}
        assert process.wait(15) == 5


def test_model_host_and_gate_load_under_their_filters(tmp_path, user):
    facts = told(launch(inside(tmp_path), "rooms.py", user=user))
    assert facts["stopped"] == ""  # torch was imported for this answer
    assert facts["refused"] == "gate_order"
    assert facts["ends"] == [["exited", 0], ["exited", 0]]
    assert facts["tripped"] == []
