"""kill -9 of any part leaves no process, no mount, no directory entry: tried for real."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.isolation.harness import AS_ROOT, as_user, launcher_command

VICTIMS = ["first", "launcher", "broker", "bwrap", "inner"]
WHO = [pytest.param(False, id="root"), pytest.param(True, id="user")]
if not AS_ROOT:
    WHO = [pytest.param(False, id="user")]


def stat_fields(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def identity(pid):
    """Pid and start time: a number alone may be given to another process."""
    return pid, stat_fields(pid)[19]


def alive(identified):
    pid, started = identified
    with contextlib.suppress(OSError):
        fields = stat_fields(pid)
        return fields[19] == started and fields[0] not in "ZX"
    return False


def descendants(pid):
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                children.setdefault(int(stat_fields(name)[1]), []).append(int(name))
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def command_of(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return []


def mount_namespaces():
    seen = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                seen.add(str(Path(f"/proc/{name}/ns/mnt").readlink()))
    return seen


def choose(victim, tree, first):
    """The process to kill, by its place in the tree."""
    bwraps = [p for p in tree if command_of(p)[:1] == ["/usr/bin/bwrap"]]
    inners = [p for p in tree if "-c" in command_of(p) and command_of(p)[0].find("python") >= 0]
    brokers = [p for p in tree if any(a.endswith("linger.py") for a in command_of(p)[:4])]
    brokers = [p for p in brokers if p != first and "launcher" not in " ".join(command_of(p)[:3])]
    launchers = [p for p in tree if p != first and "enclave.workload.launcher" in command_of(p)[:3]]
    return {
        "first": [first],
        "launcher": launchers or [first],  # without root both are one process
        "broker": brokers[:1],
        "bwrap": bwraps[:1],
        "inner": inners[:1],
    }[victim][0]


@pytest.mark.parametrize("user", WHO)
@pytest.mark.parametrize("victim", VICTIMS)
def test_nothing_is_left(tmp_path, victim, user):
    directory = tmp_path / "w"
    directory.mkdir()
    memory = ["--memory"] if AS_ROOT and not user else []
    command = launcher_command(directory, "linger.py", *memory)
    if user:
        command = as_user(directory, command)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert json.loads(process.stdout.readline()) == {"ready": True}
            tree = descendants(process.pid)
            everybody = [identity(pid) for pid in tree]
            assert len(everybody) >= 7  # launcher(s), broker, canary, two bwraps, two inners
            worlds = {str(Path(f"/proc/{pid}/ns/mnt").readlink()) for pid in tree}
            worlds -= {str(Path("/proc/self/ns/mnt").readlink())}
            target = choose(victim, tree, process.pid)
            compartment = compartment_of(target, tree, everybody)
            os.kill(target, signal.SIGKILL)
            if victim in {"bwrap", "inner"}:
                # one compartment is gone, the workload goes on; then end it
                wait_until(lambda: not any(map(alive, compartment)))
                assert alive(everybody[0])
                os.kill(process.pid, signal.SIGKILL)
            wait_until(lambda: not any(map(alive, everybody)))
            wait_until(lambda: not worlds & mount_namespaces())
            assert str(directory) not in Path("/proc/self/mounts").read_text()
            if memory:
                assert os.listdir(directory / "run") == []
        finally:
            process.kill()


def compartment_of(target, tree, everybody):
    """The killed process, and with bwrap the first process of its namespace."""
    mine = [target]
    if command_of(target)[:1] == ["/usr/bin/bwrap"]:
        mine += [pid for pid in tree if int(stat_fields(pid)[1]) == target]
    return [entry for entry in everybody if entry[0] in mine]


def wait_until(done, seconds=8.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if done():
            return
        time.sleep(0.05)
    assert done()
