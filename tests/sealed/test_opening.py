"""Opening: round trips, hostile owners, failures that leave nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save

from enclave.core.canonical import print_canonical
from enclave.core.errors import Refusal, SealedRefused
from enclave.core.sealed import ArtifactLimits
from enclave.core.vocabulary import MANIFEST_TYPE
from enclave.workload.memory.memfd import MemfdMemory
from enclave.workload.memory.protected import WipeReport
from enclave.workload.memory.tmpfs import TmpfsMemory
from tests.sealed.artifacts import (
    FIRST,
    NEXT,
    Sealed,
    craft,
    manifest_entry,
    read_opened,
    seal_stream,
    seal_tree,
)
from tests.sealed.artifacts import (
    FOUR_FILES as FILES,
)
from tests.sealed.conftest import MountTmpfs

MIB = 1024 * 1024


def refused(action: Callable[[], object]) -> Refusal:
    with pytest.raises(Refusal) as caught:
        action()
    return caught.value


SIZES = st.sampled_from([0, 1, 1000, FIRST - 1, FIRST, FIRST + 1, FIRST + NEXT, FIRST + NEXT + 1])


@given(sizes=st.lists(SIZES, min_size=1, max_size=5), threads=st.integers(1, 4))
@settings(max_examples=15, deadline=None)
def test_round_trip(sizes: list[int], threads: int) -> None:
    files = {f"{number}/file": os.urandom(size) for number, size in enumerate(sizes)}
    memory = MemfdMemory()
    with TemporaryDirectory() as place:
        opened = seal_tree(Path(place), files).open(memory, threads=threads)
    assert read_opened(opened) == files
    assert memory.wipe() == WipeReport(len(sizes), sum(sizes))


@pytest.mark.root
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_round_trip_on_huge_pages(tmp_path: Path, mount_tmpfs: MountTmpfs, threads: int) -> None:
    folder = mount_tmpfs()
    memory = TmpfsMemory(folder)
    assert read_opened(seal_tree(tmp_path, FILES).open(memory, threads=threads)) == FILES
    assert len(list(folder.iterdir())) == len(FILES)
    memory.wipe()
    assert list(folder.iterdir()) == []


def test_safetensors_reads_the_descriptor(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    tensors = {"w": np.arange(700_000, dtype=np.float32).reshape(700, 1000)}
    sealed = seal_tree(tmp_path, {"model.safetensors": save(tensors)}, "model")
    memory = MemfdMemory()
    opened = sealed.open(memory)
    with safe_open(f"/proc/self/fd/{opened.files[0].fd}", framework="np") as file:
        assert (file.get_tensor("w") == tensors["w"]).all()
    memory.wipe()


def test_three_artifacts_share_a_memory(tmp_path: Path) -> None:
    memory = MemfdMemory()
    opened = [
        seal_tree(tmp_path / artifact, {"x.json": artifact.encode()}, artifact).open(memory)
        for artifact in ("model", "suite", "bundle")
    ]
    assert [read_opened(one)["x.json"] for one in opened] == [b"model", b"suite", b"bundle"]
    assert memory.wipe() == WipeReport(3, len("modelsuitebundle"))


def test_the_same_artifact_twice(tmp_path: Path) -> None:
    sealed, memory = seal_tree(tmp_path, FILES), MemfdMemory()
    first = sealed.open(memory)
    assert refused(lambda: sealed.open(memory)).code == "memory_name_taken"
    assert read_opened(first) == FILES, "the failed one wipes its own files only"
    memory.wipe()


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    from enclave.workload.opening import open_artifact
    from enclave.workload.segment_source import SealedDirectory

    sealed, seen = seal_tree(tmp_path, FILES), []
    with SealedDirectory(sealed.directory) as source:
        open_artifact(
            source,
            sealed.key,
            sealed.salt,
            sealed.commitment,
            MemfdMemory(),
            ArtifactLimits(),
            2,
            progress=lambda done, total: seen.append((done, total)),
        )
    total = sum(map(len, FILES.values()))
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)


# Attacks by the owner, who holds the key and seals what he likes.


def entry(path: str = "a", content: bytes = b"x", **changed: object) -> dict[str, object]:
    return {**manifest_entry(path, content), **changed}


OWNERS: dict[str, tuple[dict[str, object], str]] = {
    "parent": ({"entries": [entry("../a")]}, "manifest_path_unsafe"),
    "absolute": ({"entries": [entry("/a")]}, "manifest_path_unsafe"),
    "duplicate": (
        {"entries": [entry(), entry()], "contents": [b"x"] * 2},
        "manifest_duplicate_path",
    ),
    "pickle": ({"entries": [entry("a.bin")], "artifact": "model"}, "model_pickle"),
    "model_code": ({"entries": [entry("a.py")], "artifact": "model"}, "model_file_kind"),
    "digest": ({"entries": [entry(blake3="ab" * 32)]}, "file_digest_mismatch"),
    "other_content": ({"contents": [b"y"]}, "file_digest_mismatch"),
    "size": ({"entries": [entry(size=2)]}, "index_size_mismatch"),
    "more_files": ({"entries": [entry(), entry("b")]}, "index_stream_count"),
    "fewer_files": ({"contents": [b"x", b"y"]}, "index_stream_count"),
    "oversize": ({"entries": [entry(size=2**40)]}, "artifact_too_large"),
    "other_artifact": ({"artifact": "bundle", "index_artifact": "suite"}, "manifest_mismatch"),
    "not_canonical": ({"manifest": b'{"type": 1}'}, "document_not_canonical"),
    "not_json": ({"manifest": b"\x80\x04K\x01."}, "document_not_json"),
    "empty_manifest": ({"manifest": b""}, "document_not_json"),
    "unknown_key": (
        {
            "manifest": print_canonical(
                {"type": MANIFEST_TYPE, "artifact": "suite", "files": [entry()], "run": "x"}
            )
        },
        "document_field_unknown",
    ),
}


@pytest.mark.parametrize("name", sorted(OWNERS))
def test_hostile_owner(tmp_path: Path, name: str) -> None:
    arguments, code = OWNERS[name]
    sealed = craft(tmp_path, **{"entries": [entry()], "contents": [b"x"], **arguments})  # type: ignore[arg-type]
    memory = MemfdMemory()
    limits = ArtifactLimits(max_bytes=2**30)
    assert refused(lambda: sealed.open(memory, limits=limits)).code == code
    assert memory.wipe() == WipeReport(0, 0)


def test_a_ciphertext_that_changes_under_the_opener(tmp_path: Path) -> None:
    """The host cuts a file after its size was looked at."""
    sealed = seal_tree(tmp_path, FILES)
    memory = MemfdMemory()
    from enclave.workload.opening import open_artifact
    from enclave.workload.segment_source import SealedDirectory

    class Cutting(SealedDirectory):
        def descriptor(self, stream: int) -> int:
            descriptor = super().descriptor(stream)
            if stream == 2:
                os.truncate(sealed.stream(1), MIB)
            return descriptor

    with Cutting(sealed.directory) as source:
        try:
            opened = open_artifact(
                source, sealed.key, sealed.salt, sealed.commitment, memory, ArtifactLimits(), 2
            )
        except SealedRefused as refusal:
            assert refusal.code == "stream_truncated"
            assert memory.wipe() == WipeReport(0, 0)
        else:
            assert read_opened(opened) == FILES  # the other thread was faster


def test_a_failing_progress_callback_wipes(tmp_path: Path) -> None:
    from enclave.workload.opening import open_artifact
    from enclave.workload.segment_source import SealedDirectory

    sealed, memory = seal_tree(tmp_path, FILES), MemfdMemory()

    def fail(_done: int, _total: int) -> None:
        raise RuntimeError

    with SealedDirectory(sealed.directory) as source, pytest.raises(RuntimeError):
        open_artifact(
            source,
            sealed.key,
            sealed.salt,
            sealed.commitment,
            memory,
            ArtifactLimits(),
            2,
            progress=fail,
        )
    assert memory.wipe() == WipeReport(0, 0)


def test_no_threads(sealed_once: Sealed) -> None:
    with pytest.raises(ValueError, match="thread"):
        sealed_once.open(threads=0)


def test_manifest_of_several_segments(tmp_path: Path) -> None:
    files = {f"{'n' * 200}/{number:05d}": b"" for number in range(3500)}
    entries = [manifest_entry(path, b"") for path in sorted(files)]
    sealed = craft(tmp_path, entries, [b""] * len(files))
    assert sealed.stream(0).stat().st_size > MIB
    assert refused(lambda: sealed.open(limits=ArtifactLimits(max_files=3))).code == (
        "artifact_too_many_files"
    )
    data = bytearray(sealed.stream(0).read_bytes())
    data[MIB + 50] ^= 1
    sealed.stream(0).write_bytes(data)
    assert refused(sealed.open).code == "segment_invalid"
    assert seal_stream(bytes(32), 0, b"") != b""
