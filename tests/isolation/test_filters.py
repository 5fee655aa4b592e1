"""The compiled filters, executed instruction by instruction as the kernel would."""

import errno
import struct

import pytest

from enclave.core.errors import IsolationRefused
from enclave.workload.isolation.seccomp import program, rules
from enclave.workload.isolation.seccomp.rules import (
    ARCHITECTURES,
    compile_filter,
    parse_filter,
    syscall_name,
    syscall_table,
)

ALLOW, TRIPWIRE = "allow", "tripwire"
FILTERS = ("sandbox", "model_host", "gate")
AF_INET, AF_UNIX, AF_VSOCK = 2, 1, 40
STREAM, DGRAM, NONBLOCK, CLOEXEC = 1, 2, 0x800, 0x80000
FASTOPEN, NEWUSER, THREAD = 0x20000000, 0x10000000, 0x10F00


def execute(code: bytes, number: int, arguments=(), architecture=ARCHITECTURES["x86_64"]):
    """A classic BPF machine with the six instructions that the assembler emits."""
    padded = [a & (2**64 - 1) for a in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, architecture, 0, *padded)
    instructions = [struct.unpack_from("<HBBI", code, i) for i in range(0, len(code), 8)]
    accumulator, counter = 0, 0
    while True:
        operation, yes, no, value = instructions[counter]
        counter += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x15:
            counter += yes if accumulator == value else no
        elif operation == 0x35:
            counter += yes if accumulator >= value else no
        elif operation == 0x06:
            return verdict(value)
        else:
            raise AssertionError(f"instruction {operation:#x}")


def verdict(value: int) -> str:
    if value == program.RET_ALLOW:
        return ALLOW
    if value == program.RET_TRIPWIRE:
        return TRIPWIRE
    assert value & 0xFFFF0000 == program.RET_ERRNO
    return errno.errorcode[value & 0xFFFF]


@pytest.fixture(scope="module")
def compiled():
    return {
        (name, machine): compile_filter(parse_filter(name), machine)
        for name in FILTERS
        for machine in ARCHITECTURES
    }


CASES = [
    ("read", (0,), (ALLOW, ALLOW, ALLOW)),
    ("openat", (0,), (ALLOW, ALLOW, ALLOW)),
    ("execve", (), ("ENOENT", "ENOENT", "ENOENT")),
    ("execveat", (), ("ENOENT", "ENOENT", "ENOENT")),
    ("clone3", (), ("ENOSYS", "ENOSYS", "ENOSYS")),
    ("socket", (AF_INET, STREAM, 6), (ALLOW, "EPERM", "EPERM")),
    ("socket", (AF_INET, STREAM | NONBLOCK | CLOEXEC, 0), (ALLOW, "EPERM", "EPERM")),
    ("socket", (AF_INET, STREAM, 262), ("EPERM", "EPERM", "EPERM")),
    ("socket", (AF_INET, STREAM | 0x10, 0), ("EPERM", "EPERM", "EPERM")),
    ("socket", (AF_INET, DGRAM, 0), ("EPERM", "EPERM", "EPERM")),
    ("socket", (10, STREAM, 6), ("EPERM", "EPERM", "EPERM")),
    ("socket", (16, 3, 0), ("EPERM", "EPERM", "EPERM")),
    ("socket", (AF_UNIX, STREAM, 0), ("EPERM", "EPERM", "EPERM")),
    ("socket", (AF_VSOCK, STREAM, 0), (TRIPWIRE, TRIPWIRE, TRIPWIRE)),
    ("socket", (17, 3, 0), (TRIPWIRE, TRIPWIRE, TRIPWIRE)),
    ("socketpair", (AF_UNIX, STREAM | CLOEXEC), (ALLOW, ALLOW, "EPERM")),
    ("socketpair", (AF_UNIX, DGRAM), ("EPERM", "EPERM", "EPERM")),
    ("connect", (3,), (ALLOW, "EPERM", "EPERM")),
    ("bind", (3,), ("EPERM", "EPERM", "EPERM")),
    ("accept4", (3,), ("EPERM", ALLOW, "EPERM")),
    ("sendto", (3, 1, 1, 0, 0), (ALLOW, ALLOW, ALLOW)),
    ("sendto", (3, 1, 1, FASTOPEN, 0), ("EPERM", "EPERM", "EPERM")),
    ("sendto", (3, 1, 1, 0, 0x1000), ("EPERM", "EPERM", "EPERM")),
    ("sendto", (3, 1, 1, 0, 1 << 40), ("EPERM", "EPERM", "EPERM")),
    ("sendmsg", (3, 1, FASTOPEN), ("EPERM", "EPERM", "EPERM")),
    ("sendmmsg", (3, 1), ("EPERM", "EPERM", "EPERM")),
    ("clone", (17,), (ALLOW, "EPERM", "EPERM")),
    ("clone", (THREAD,), (ALLOW, ALLOW, "EPERM")),
    ("clone", (NEWUSER | 17,), (TRIPWIRE, TRIPWIRE, TRIPWIRE)),
    ("clone", (NEWUSER | THREAD,), (TRIPWIRE, TRIPWIRE, TRIPWIRE)),
    ("mmap", (0, 4096, 3), (ALLOW, ALLOW, ALLOW)),
    ("mmap", (0, 4096, 7), ("EPERM", ALLOW, "EPERM")),
    ("mprotect", (0, 4096, 6), ("EPERM", ALLOW, "EPERM")),
    ("mprotect", (0, 4096, 5), (ALLOW, ALLOW, ALLOW)),
    ("ioctl", (0, 0x5401), (ALLOW, ALLOW, ALLOW)),
    ("ioctl", (0, 0x5412), ("EPERM", "EPERM", "EPERM")),
    ("prctl", (15,), (ALLOW, ALLOW, ALLOW)),
    ("prctl", (22,), ("EPERM", "EPERM", "EPERM")),
    ("prlimit64", (0, 7, 0), (ALLOW, ALLOW, ALLOW)),
    ("prlimit64", (0, 7, 1 << 33), ("EPERM", "EPERM", "EPERM")),
    ("prlimit64", (9, 7, 0), ("EPERM", "EPERM", "EPERM")),
    ("fchmod", (3, 0o644), (ALLOW, ALLOW, "EPERM")),
    ("fchmod", (3, 0o4755), ("EPERM", "EPERM", "EPERM")),
    ("setsockopt", (3, 6, 1), (ALLOW, ALLOW, "EPERM")),
    ("setsockopt", (3, 6, 30), ("EPERM", "EPERM", "EPERM")),
    ("setsockopt", (3, 1, 36), ("EPERM", "EPERM", "EPERM")),
    ("unlinkat", (), (ALLOW, ALLOW, "EPERM")),
    ("symlinkat", (), ("EPERM", "EPERM", "EPERM")),
    ("mknodat", (), ("EPERM", "EPERM", "EPERM")),
    ("memfd_create", (), ("EPERM", "EPERM", "EPERM")),
    ("seccomp", (), ("EPERM", "EPERM", "EPERM")),
    ("madvise", (0, 0, 12), ("EPERM", "EPERM", "EPERM")),
    ("madvise", (0, 0, 4), (ALLOW, ALLOW, ALLOW)),
    ("open_by_handle_at", (), ("EPERM", "EPERM", "EPERM")),
    ("file_setattr", (), ("EPERM", "EPERM", "EPERM")),
]


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
def test_verdict(compiled, machine, name, arguments, expected):
    number = syscall_table()[name][0 if machine == "x86_64" else 1]
    if number is None:
        pytest.fail(f"{name} is no call of {machine}")
    found = tuple(
        execute(compiled[kind, machine], number, arguments, ARCHITECTURES[machine])
        for kind in FILTERS
    )
    assert found == expected


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize("kind", FILTERS)
def test_every_dangerous_call_trips(compiled, kind, machine):
    column = 0 if machine == "x86_64" else 1
    tripping = [
        name
        for name, numbers in syscall_table().items()
        if numbers[column] is not None
        and execute(compiled[kind, machine], numbers[column], (), ARCHITECTURES[machine])
        == TRIPWIRE
    ]
    assert set(tripping) >= {
        *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "io_uring_setup"),
        *("io_uring_enter", "bpf", "perf_event_open", "userfaultfd", "mount", "umount2", "setns"),
        *("unshare", "chroot", "pivot_root", "add_key", "keyctl", "kexec_load", "finit_module"),
        *("syslog", "clock_settime", "move_mount", "open_tree", "fsopen", "kcmp", "reboot"),
    }


@pytest.mark.parametrize("kind", FILTERS)
def test_unknown_and_future_calls_are_refused(compiled, kind):
    for number in (470, 999, 0x3FFFFFFF):
        assert execute(compiled[kind, "x86_64"], number) == "EPERM"


@pytest.mark.parametrize("kind", FILTERS)
def test_other_abis_trip(compiled, kind):
    code = compiled[kind, "x86_64"]
    assert execute(code, 0x40000000 | 39) == TRIPWIRE  # x32 getpid
    assert execute(code, -1) == TRIPWIRE
    assert execute(code, 20, (), 0x40000003) == TRIPWIRE  # i386
    assert execute(compiled[kind, "aarch64"], 39, (), ARCHITECTURES["x86_64"]) == TRIPWIRE


def test_table_names_both_machines():
    table = syscall_table()
    assert len(table) > 360
    assert table["openat"] == (257, 56)
    assert table["mmap"] == (9, 222)
    assert table["open"] == (2, None)
    assert table["landlock_restrict_self"] == (446, 446)
    assert syscall_name(101, "x86_64") == "ptrace"
    assert syscall_name(117, "aarch64") == "ptrace"
    assert syscall_name(9999, "x86_64") == "syscall_9999"


@pytest.mark.parametrize(
    "text",
    [
        "allow read",
        "default errno EPERM\ndefault errno EPERM",
        "default errno EPERM\nallow no_such_call",
        "default errno EPERM\nallow read\nallow read",
        "default errno EPERM\npermit read",
        "default errno ENOSUCH",
        "default errno EPERM\nallow read when",
        "default errno EPERM\nallow read when a9 == 1",
        "default errno EPERM\nallow read when a0 > 1",
        "default errno EPERM\nallow read when a0 == NAME",
        "default errno EPERM\nallow read when a0 == 0x100000000",
        "default errno EPERM\nallow read when a0 & 1 null",
        "default errno EPERM\nallow",
    ],
)
def test_malformed_text_is_refused(monkeypatch, text):
    original = rules._lines
    monkeypatch.setattr(
        rules,
        "_lines",
        lambda path: text.splitlines() if path.startswith("filters/") else original(path),
    )
    with pytest.raises(IsolationRefused) as caught:
        parse_filter("written_by_the_test")
    assert caught.value.code == "seccomp_filter"


def test_unsupported_machine_is_refused():
    with pytest.raises(IsolationRefused) as caught:
        compile_filter(parse_filter("gate"), "riscv64")
    assert caught.value.code == "machine_unsupported"
