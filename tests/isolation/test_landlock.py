"""Landlock on this kernel, and the rules for older ABIs that the code must not overrun."""

import errno
import os
import socket

import pytest

from enclave.core.errors import IsolationRefused
from enclave.workload.isolation import kernel, landlock
from enclave.workload.isolation.landlock import LandlockRules, PathRule, demand_landlock

READ = ("read_file", "read_dir")


def confined(rules, act, granted=()):
    """Run `act` in a forked, confined child; returns what it returned, as text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
            landlock.restrict_self(rules, granted)
            os.write(write, str(act()).encode())
        except OSError as error:
            os.write(write, errno.errorcode[error.errno].encode())
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "closed").mkdir()
    for name in ("open", "closed"):
        (tmp_path / name / "file").write_text(name)
    return tmp_path


def rules(tree, rights=READ, abi=6, ports=()):
    return LandlockRules((PathRule(str(tree / "open"), rights),), ports, abi)


def read(path):
    return lambda: os.read(os.open(path, os.O_RDONLY), 9).decode()


@pytest.mark.parametrize("abi", [1, 2, 3, 4, 5, 6, None])
def test_files(tree, monkeypatch, abi):
    """An older kernel's ABI handles fewer rights; what it does handle holds."""
    if abi is not None:
        monkeypatch.setattr(landlock, "landlock_abi", lambda: abi)
    some = rules(tree, abi=1, ports=(8000,) if abi is None or abi >= 4 else ())
    assert confined(some, read(tree / "open" / "file")) == "open"
    assert confined(some, read(tree / "closed" / "file")) == "EACCES"
    assert confined(some, lambda: os.open(tree / "open" / "file", os.O_WRONLY)) == "EACCES"
    assert confined(some, lambda: os.open(tree / "open" / "new", os.O_CREAT)) == "EACCES"
    assert confined(some, lambda: os.unlink(tree / "open" / "file")) == "EACCES"
    assert confined(some, lambda: (tree / "open" / "link").symlink_to("x")) == "EACCES"


def test_a_handed_over_file_is_read_through_its_descriptor_alone(tree):
    """The model host: no path leads to the memory, its descriptors may be opened again."""
    descriptor = os.open(tree / "closed" / "file", os.O_RDONLY)
    directory = os.open(tree / "closed", os.O_PATH)
    some = LandlockRules((PathRule(str(tree / "open"), READ), PathRule("/proc", READ)), (), 6)
    again = read(f"/proc/self/fd/{descriptor}")
    assert confined(some, again) == "EACCES"
    assert confined(some, again, [directory]) == "closed"
    listing = lambda: os.listdir(tree / "closed")  # noqa: E731
    assert confined(some, listing, [directory]) == "EACCES"
    os.close(descriptor)
    os.close(directory)


def test_one_port_and_no_bind(tree):
    address = ("127.0.0.1", 0)
    with socket.create_server(address) as allowed, socket.create_server(address) as other:
        some = rules(tree, ports=(allowed.getsockname()[1],))

        def connect(to):
            return lambda: socket.socket().connect(to.getsockname())

        assert confined(some, connect(allowed)) == "None"
        assert confined(some, connect(other)) == "EACCES"
        assert confined(some, lambda: socket.socket().bind(address)) == "EACCES"


def test_signals_and_abstract_sockets_stay_inside(tree):
    parent = os.getpid()
    with socket.socket(socket.AF_UNIX) as listener:
        name = f"\0doubleblind-test-{parent}"
        listener.bind(name)
        listener.listen()
        assert confined(rules(tree), lambda: os.kill(parent, 0)) == "EPERM"

        def connect():
            socket.socket(socket.AF_UNIX).connect(name)

        assert confined(rules(tree), connect) == "EPERM"


def test_it_can_not_be_loosened(tree):
    def widen():
        landlock.restrict_self(LandlockRules((PathRule("/", READ),), (), 6))
        return read(tree / "closed" / "file")()

    assert confined(rules(tree), widen) == "EACCES"


def test_a_missing_abi_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(landlock, "landlock_abi", lambda: 5)
    with pytest.raises(IsolationRefused) as caught:
        demand_landlock(6)
    assert (caught.value.code, caught.value.got) == ("landlock_abi", "ABI 5")
    assert "6.12" in caught.value.hint


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP])
def test_no_landlock_is_refused_by_name(monkeypatch, number):
    def absent(*_):
        raise OSError(number, "")

    monkeypatch.setattr(landlock, "syscall", absent)
    with pytest.raises(IsolationRefused) as caught:
        demand_landlock(1)
    assert caught.value.code == "landlock_missing"
    assert "lsm=landlock" in caught.value.hint
