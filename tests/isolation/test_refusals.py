"""Each missing feature has its own code and says what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from enclave.core.errors import IsolationRefused
from enclave.workload.isolation import profile, runtime
from enclave.workload.isolation.limits import CEILINGS, Limits, parse_limits
from enclave.workload.isolation.runtime import discover_runtime, find_bubblewrap
from enclave.workload.isolation.seccomp import load
from enclave.workload.isolation.swap import refuse_swap, swap_in_use
from enclave.workload.launcher import identities, root
from enclave.workload.launcher.client import LauncherClient
from enclave.workload.launcher.preflight import demand_bubblewrap
from enclave.workload.launcher.selftest import SelfTest, demand_tier
from enclave.workload.launcher.spawn import Identity, spawn
from enclave.workload.launcher.starter import missing_for_t2

NOBODY = Identity(None, None)


def code_of(act, *arguments, **fields):
    with pytest.raises(IsolationRefused) as caught:
        act(*arguments, **fields)
    return caught.value


def test_no_bubblewrap(monkeypatch, tmp_path):
    monkeypatch.setattr(runtime, "_BWRAP_PLACES", (str(tmp_path / "absent"),))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    refusal = code_of(find_bubblewrap)
    assert (refusal.code, refusal.hint) == ("bwrap_missing", "apt-get install bubblewrap")


@pytest.mark.parametrize(
    ("complaint", "code"),
    [
        ("bwrap: No permissions to create new namespace", "userns_unavailable"),
        ("bwrap: setting up uid map: Permission denied", "userns_unavailable"),
        ("bwrap: Creating new namespace failed: No space left on device", "userns_unavailable"),
        ("bwrap: Can't find source path /x: No such file or directory", "bwrap_failed"),
    ],
)
def test_a_bubblewrap_that_fails(tmp_path, complaint, code):
    fake = tmp_path / "bwrap"
    fake.write_text(f'#!/bin/sh\necho "{complaint}" >&2\nexit 1\n')
    fake.chmod(0o755)
    refusal = code_of(demand_bubblewrap, str(fake), discover_runtime(), NOBODY)
    assert refusal.code == code
    assert refusal.hint
    assert complaint.partition(": ")[2][:20] in refusal.got


def test_the_real_bubblewrap_starts():
    child = os.fork()  # the preflight reaps orphans: not in the test's own process
    if child == 0:
        status = 1
        try:
            demand_bubblewrap(find_bubblewrap(), discover_runtime(), NOBODY)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    # as root bwrap works as well; that it is never used so is the launcher's business
    assert os.waitstatus_to_exitcode(status) == 0


def test_no_seccomp(monkeypatch):
    def absent(*_):
        raise OSError(22, "")

    monkeypatch.setattr(load, "syscall", absent)
    refusal = code_of(load.load_filter, bytes(8))
    assert (refusal.code, refusal.got) == ("seccomp_unavailable", "EINVAL")


def test_no_tmpfs_without_swap(monkeypatch, tmp_path):
    def refuse(*_):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(root, "MEMORY_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(root, "mount", refuse)
    refusal = code_of(root.mount_memory, "ab" * 16, 4096, 1, 1)
    assert refusal.code == "tmpfs_noswap"
    assert "6.4" in refusal.hint
    assert list(tmp_path.iterdir()) == []


def test_huge_pages_are_only_speed(monkeypatch, tmp_path):
    tried = []

    def without_huge_pages(_source, _target, _kind, _flags, data):
        tried.append(data)
        if "huge" in data:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(root, "MEMORY_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(root, "mount", without_huge_pages)
    assert root.mount_memory("ab" * 16, 4096, 1, 1) == f"{tmp_path}/{'ab' * 16}"
    assert [("noswap" in data, "huge" in data) for data in tried] == [(True, True), (True, False)]


def test_swap(tmp_path):
    table = tmp_path / "swaps"
    table.write_text("Filename\tType\tSize\tUsed\tPriority\n")
    refuse_swap(str(table))
    table.write_text(table.read_text() + "/swapfile file 1 0 -2\n")
    refusal = code_of(refuse_swap, str(table))
    assert (refusal.code, refusal.hint) == ("swap_on", "swapoff -a")
    assert swap_in_use(str(tmp_path / "unreadable"))


def test_a_process_that_no_launcher_started(monkeypatch):
    monkeypatch.delenv("DOUBLEBLIND_LAUNCHER", raising=False)
    assert code_of(LauncherClient.from_environment).code == "launcher_missing"


def test_tiers():
    class Own:
        separate = True

    class Shared:
        separate = False

    assert missing_for_t2(Own(), 6) == ()
    assert missing_for_t2(Own(), 5) == ("landlock_abi_6",)
    assert missing_for_t2(Shared(), 7) == ("own_uid",)
    lower = SelfTest("T1", ("own_uid",), "0" * 64, {}, ())
    demand_tier(lower, "T1")
    for minimum in ("T2", "T3", "T0", "", "t1"):
        refusal = code_of(demand_tier, lower, minimum)
        assert refusal.code == "tier_too_low"
    assert "root" in refusal.hint


@pytest.mark.parametrize(
    "uids",
    [
        {"broker": 1},
        {"broker": 1, "model_host": 2, "gate": 3, "sandbox": 3},
        {"broker": 0, "model_host": 2, "gate": 3, "sandbox": 4},
        {"broker": 1, "model_host": 2, "gate": 3, "sandbox": 4, "shell": 5},
    ],
)
def test_uids_are_distinct_unprivileged_and_complete(uids):
    assert code_of(identities.Identities, uids).code == "uids"


def test_every_limit_has_a_ceiling():
    assert parse_limits(Limits().as_json()) == Limits()
    assert set(CEILINGS) == set(Limits().as_json())


def test_profiles_are_closed():
    assert code_of(profile.choose_profile, "sandbox", "gate").code == "compartment_kind"
    assert code_of(profile.choose_profile, "probe", "probe").code == "compartment_kind"
    strict = profile.choose_profile("probe_strict", "sandbox")
    real = profile.choose_profile("sandbox", "")
    for name in ("filter", "inputs", "listener", "scratch", "own_proc", "tripwire_kills_all"):
        assert getattr(strict, name) == getattr(real, name)


def test_an_unknown_entry_can_not_be_started():
    refusal = code_of(spawn, ["/nonexistent"], identity=NOBODY, environment={})
    assert (refusal.code, refusal.got) == ("spawn_failed", "FileNotFoundError 2")


def test_nothing_runs_with_assertions_alone(tmp_path):
    """python -O changes nothing: the self-test still refuses what is open."""
    program = (
        "from enclave.workload.launcher.selftest import ProbeResult, demand_expected\n"
        "demand_expected([ProbeResult('x', 'gate', 'x', 'refused', 'open')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-O", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "sandbox_unavailable" in done.stderr


def test_the_import_path_is_the_runtime_alone(monkeypatch, tmp_path):
    package = Path(runtime.enclave.__file__).parent
    monkeypatch.chdir(package)
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend("")
    found = discover_runtime()
    assert not {str(package), str(tmp_path), ""} & set(found.import_path)
    standard = found.import_path.index(str(Path(os.__file__).parent))
    packages = found.import_path.index(str(package.parent))
    assert standard < packages
    assert all(path.startswith("/") for path in (*found.trees, *found.import_path))
    assert not any(tree in {"/", "/home", "/root", "/etc", "/tmp"} for tree in found.trees)
