"""Protected memory: what it refuses to be, who can read and write it, that it is wiped."""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from enclave.core.errors import IsolationRefused, Refusal, SealedRefused
from enclave.workload.isolation.swap import swap_in_use
from enclave.workload.memory.locking import LockedBuffer
from enclave.workload.memory.memfd import MemfdMemory
from enclave.workload.memory.protected import ProtectedFile, ProtectedMemory, WipeReport
from enclave.workload.memory.secret_key import SecretKey
from enclave.workload.memory.tmpfs import TmpfsMemory
from tests.sealed.artifacts import Sealed, seal_tree
from tests.sealed.conftest import MountTmpfs

MIB = 1024 * 1024
SECRET = os.urandom(1000) * 3000
NOBODY = 65534


def refused(action: Callable[[], object]) -> Refusal:
    with pytest.raises(Refusal) as caught:
        action()
    return caught.value


@pytest.fixture(params=["memfd", "tmpfs"])
def memory(request: pytest.FixtureRequest) -> Iterator[ProtectedMemory]:
    if request.param == "memfd":
        made: ProtectedMemory = MemfdMemory()
    else:
        made = TmpfsMemory(request.getfixturevalue("mount_tmpfs")())
    yield made
    made.wipe()


def fill(memory: ProtectedMemory, name: str = "file") -> tuple[ProtectedFile, int]:
    file = memory.create(name, len(SECRET))
    file.write(memoryview(SECRET)[MIB:], MIB)
    file.write(memoryview(SECRET)[:MIB], 0)
    return file, file.seal_read_only()


def test_written_and_read(memory: ProtectedMemory) -> None:
    file, descriptor = fill(memory)
    assert file.size == len(SECRET)
    assert os.pread(descriptor, len(SECRET) + 1, 0) == SECRET
    assert fcntl.fcntl(descriptor, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


def test_empty_file(memory: ProtectedMemory) -> None:
    descriptor = memory.create("empty", 0).seal_read_only()
    assert os.pread(descriptor, 1, 0) == b""
    assert memory.wipe() == WipeReport(1, 0)


def test_descriptor_is_read_only(memory: ProtectedMemory) -> None:
    _, descriptor = fill(memory)
    for write in (
        lambda: os.pwrite(descriptor, b"x", 0),
        lambda: os.ftruncate(descriptor, 1),
        lambda: mmap.mmap(descriptor, 4096),
    ):
        with pytest.raises(OSError, match=r"Bad file|Invalid|Permission|not permitted"):
            write()


ATTACK = """
import os, sys
from pathlib import Path
user, path = int(sys.argv[1]), sys.argv[2]
os.setgroups([]); os.setgid(user); os.setuid(user)
try:
    assert Path(path).read_bytes()[:4] == bytes.fromhex(sys.argv[3])
except OSError as error:
    print("unreadable", error); raise SystemExit
for flags in (os.O_RDWR, os.O_WRONLY, os.O_WRONLY | os.O_TRUNC):
    try:
        os.open(path, flags)
    except PermissionError:
        continue
    print("writable"); raise SystemExit
try:
    os.chmod(path, 0o666)
except PermissionError:
    print("held")
"""


@pytest.mark.root
def test_another_user_reads_and_cannot_write(memory: ProtectedMemory) -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    _, descriptor = fill(memory)
    done = subprocess.run(
        [
            sys.executable, "-c", ATTACK,
            str(NOBODY), f"/proc/self/fd/{descriptor}", SECRET[:4].hex(),
        ],
        pass_fds=[descriptor], capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "held", done.stderr


def test_memfd_is_sealed_against_root_too() -> None:
    memory = MemfdMemory()
    _, descriptor = fill(memory)
    path = f"/proc/self/fd/{descriptor}"
    seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    assert seals & fcntl.F_SEAL_SEAL
    assert seals & fcntl.F_SEAL_SHRINK
    assert seals & fcntl.F_SEAL_GROW
    try:
        writing = os.open(path, os.O_RDWR)
    except PermissionError:
        writing = -1  # not root: the mode holds already
    if writing >= 0:
        for write in (
            lambda: os.pwrite(writing, b"x", 0),
            lambda: os.ftruncate(writing, 1),
            lambda: os.ftruncate(writing, 2 * len(SECRET)),
            lambda: mmap.mmap(writing, 4096),
            lambda: os.posix_fallocate(writing, 0, 4 * MIB),
            lambda: fcntl.fcntl(writing, fcntl.F_ADD_SEALS, 0),
        ):
            with pytest.raises(OSError, match=r"Permission|not permitted"):
                write()
        os.close(writing)
    assert os.pread(descriptor, len(SECRET), 0) == SECRET
    memory.wipe()


@pytest.mark.parametrize("swap", [True, False])
def test_memfd_is_kept_from_swap(monkeypatch: pytest.MonkeyPatch, swap: bool) -> None:
    monkeypatch.setattr("enclave.workload.memory.memfd.swap_in_use", lambda: swap)
    memory = MemfdMemory()
    file = memory.create("file", 4096)
    assert file.swappable
    file.write(memoryview(SECRET)[:4096], 0)
    file.seal_read_only()
    assert not file.swappable  # 4 KiB are within every memory lock limit
    memory.wipe()


def test_swap_is_read_from_the_kernel() -> None:
    assert swap_in_use() == (Path("/proc/swaps").read_text().count("\n") > 1)


def test_wipe_overwrites_what_others_still_hold(memory: ProtectedMemory) -> None:
    """A reader that kept the file open, or mapped it, finds zeros."""
    _, descriptor = fill(memory)
    kept = os.dup(descriptor)
    mapped = mmap.mmap(kept, len(SECRET), prot=mmap.PROT_READ)
    assert mapped[:100] == SECRET[:100]
    assert memory.wipe() == WipeReport(1, len(SECRET))
    assert os.pread(kept, len(SECRET) + 1, 0) == bytes(len(SECRET))
    assert mapped[:] == bytes(len(SECRET))
    mapped.close()
    os.close(kept)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)


def test_wipe_of_a_file_never_finished(memory: ProtectedMemory) -> None:
    file = memory.create("half", len(SECRET))
    file.write(memoryview(SECRET)[:MIB], 0)
    kept = os.open(f"/proc/self/fd/{file._descriptor}", os.O_RDONLY)  # type: ignore[attr-defined]
    assert os.pread(kept, 10, 0) == SECRET[:10]
    assert memory.discard("half") == len(SECRET)
    assert os.pread(kept, len(SECRET), 0).strip(b"\0") == b""
    os.close(kept)
    assert memory.wipe() == WipeReport(0, 0)


def test_wipe_twice_and_descriptors(memory: ProtectedMemory) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(5):
        fill(memory, f"file-{number}")
    assert memory.wipe() == WipeReport(5, 5 * len(SECRET))
    assert memory.wipe() == WipeReport(0, 0)
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.root
def test_wiped_tmpfs_can_be_unmounted(mount_tmpfs: MountTmpfs) -> None:
    folder = mount_tmpfs()
    memory = TmpfsMemory(folder)
    fill(memory)
    assert subprocess.run(["umount", folder], check=False, stderr=subprocess.DEVNULL).returncode
    memory.wipe()
    assert list(folder.iterdir()) == []
    subprocess.run(["umount", folder], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)  # for the fixture
    with pytest.raises(ValueError, match="wiped"):
        memory.create("more", 1)


@pytest.mark.root
def test_a_wipe_that_does_not_hold_is_told(mount_tmpfs: MountTmpfs) -> None:
    """The file shrank under the memory: something else wrote to it. All others are wiped."""
    folder = mount_tmpfs()
    memory = TmpfsMemory(folder)
    fill(memory, "one")
    fill(memory, "two")
    (folder / "one").unlink()
    (folder / "one").write_bytes(b"")
    (folder / "one").chmod(0)
    os.truncate(folder / "two", 0)
    (folder / "two").write_bytes(bytes(len(SECRET) + 1))
    refusal = refused(memory.wipe)
    assert (refusal.stage, refusal.code) == ("isolation", "wipe_incomplete")
    assert list(folder.iterdir()) == []


# What protected memory may not be.


def test_a_disk_is_refused(tmp_path: Path) -> None:
    if os.statvfs(tmp_path).f_files == 0:
        pytest.skip("the temporary directory is no disk")
    (tmp_path / "folder").mkdir(mode=0o700)
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to("folder")
    for name in ("folder", "file", "link", "none"):
        refusal = refused(lambda n=name: TmpfsMemory(tmp_path / n))
        assert (refusal.stage, refusal.code) == ("isolation", "memory_not_tmpfs")
        assert str(tmp_path / name) in refusal.expected


@pytest.mark.root
@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("size=4m,mode=0700", "memory_swappable"),
        ("noswap,size=4m,mode=0755", "memory_shared"),
        ("noswap,size=4m,mode=1777", "memory_shared"),
        (f"noswap,size=4m,mode=0700,uid={NOBODY}", "memory_shared"),
    ],
)
def test_an_unsafe_tmpfs_is_refused(mount_tmpfs: MountTmpfs, options: str, code: str) -> None:
    folder = mount_tmpfs(options)
    before = len(os.listdir("/proc/self/fd"))
    refusal = refused(lambda: TmpfsMemory(folder))
    assert (refusal.stage, refusal.code) == ("isolation", code)
    assert str(folder) in refusal.expected
    assert len(os.listdir("/proc/self/fd")) == before


def test_names(memory: ProtectedMemory) -> None:
    for name in ("", "../x", "a/b", ".", "X", "a" * 65, "a\n"):
        with pytest.raises(ValueError, match="name"):
            memory.create(name, 1)
    memory.create("taken", 1)
    assert refused(lambda: memory.create("taken", 1)).code == "memory_name_taken"


@pytest.mark.root
def test_a_name_that_is_there_already(mount_tmpfs: MountTmpfs) -> None:
    folder = mount_tmpfs()
    memory = TmpfsMemory(folder)
    (folder / "file").symlink_to("/etc/hostname")
    assert refused(lambda: memory.create("file", 1)).code == "memory_name_taken"


# Full memory, for real.


@pytest.fixture(scope="module")
def eight_megabytes(tmp_path_factory: pytest.TempPathFactory) -> Sealed:
    files = {"a.bin": os.urandom(MIB), "b.bin": os.urandom(8 * MIB), "c.bin": b"c"}
    return seal_tree(tmp_path_factory.mktemp("sealed"), files)


@pytest.mark.root
@pytest.mark.parametrize("pages", ["never", "always"])
def test_full_memory(mount_tmpfs: MountTmpfs, eight_megabytes: Sealed, pages: str) -> None:
    folder = mount_tmpfs(f"huge={pages},noswap,size=4m,mode=0700")
    memory = TmpfsMemory(folder)
    refusal = refused(lambda: eight_megabytes.open(memory))
    assert (refusal.stage, refusal.code) == ("sealed", "memory_full")
    assert list(folder.iterdir()) == []
    assert os.statvfs(folder).f_bfree == os.statvfs(folder).f_blocks, "every page is back"
    assert memory.wipe() == WipeReport(0, 0)


@pytest.mark.root
def test_memory_that_fills_up_while_writing(mount_tmpfs: MountTmpfs) -> None:
    """Where nothing was reserved a write fails, and no signal kills the process."""
    memory = TmpfsMemory(mount_tmpfs("noswap,size=4m,mode=0700"))
    file = memory.create("file", MIB)
    assert refused(lambda: file.write(memoryview(bytes(8 * MIB)), 0)).code == "memory_full"
    file.write(memoryview(SECRET)[:MIB], 0)
    os.ftruncate(file._descriptor, MIB)
    memory.wipe()


def test_too_few_descriptors(tmp_path: Path) -> None:
    sealed = seal_tree(tmp_path, {f"{number}": b"x" for number in range(60)})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, hard))
    memory = MemfdMemory()
    try:
        refusal = refused(lambda: sealed.open(memory))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert refusal.code in {"memory_descriptors", "stream_missing"}
    assert memory.wipe() == WipeReport(0, 0)


# Keys.


def test_secret_key() -> None:
    source = bytearray(range(32))
    key = SecretKey(source)
    assert source == bytes(32), "the caller's copy is gone"
    assert bytes(key.view) == bytes(range(32))
    assert "0102" not in repr(key)
    assert isinstance(key.locked, bool)
    key.wipe()
    key.wipe()
    assert not key.locked
    with pytest.raises(ValueError, match="wiped"):
        key.view  # noqa: B018
    with pytest.raises(TypeError):
        key.__reduce__()


def test_a_key_opens_and_is_wiped(tmp_path: Path) -> None:
    sealed, memory = seal_tree(tmp_path, {"a": b"a"}), MemfdMemory()
    key = SecretKey(sealed.key)
    sealed.open(memory, key=key.view)
    key.wipe()
    memory.wipe()


def test_a_child_does_not_inherit_a_locked_buffer() -> None:
    buffer = LockedBuffer(32)
    buffer.view[:] = b"s" * 32
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, bytes(buffer.view))
        os._exit(0)
    os.close(writing)
    assert os.read(reading, 64) == bytes(32)
    os.waitpid(child, 0)
    os.close(reading)
    buffer.close()


def test_refusals_are_typed() -> None:
    assert issubclass(IsolationRefused, Refusal)
    assert issubclass(SealedRefused, Refusal)
