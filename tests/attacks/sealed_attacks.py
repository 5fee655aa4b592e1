"""Attacks on sealed artifacts: segments, manifests, salts, and code exchanged after approval."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from enclave.clients.party.artifacts import load_secret
from enclave.core.errors import SealedRefused, UploadRefused
from enclave.core.sealed.stream import SEGMENT_BYTES
from enclave.workload.memory.memfd import MemfdMemory
from enclave.workload.opening import OpenedArtifact, open_artifact
from tests.attacks.acceptance import EVALUATOR, HOST, MODEL_OWNER, Step, Table
from tests.attacks.scene import Stage, Workload
from tests.sealed.artifacts import (
    FIRST,
    NEXT,
    Sealed,
    rewrite_index,
    seal_tree,
)

ATTACKS = Table()


def three_segments(stage: Stage) -> Sealed:
    """Two files of exactly the same size, three segments each."""
    size = FIRST + NEXT + 1000
    return seal_tree(stage.folder / "artifact", {"a": os.urandom(size), "b": os.urandom(size)})


def segments(sealed: Sealed, stream: int = 1) -> list[bytes]:
    data = sealed.stream(stream).read_bytes()
    return [data[start : start + SEGMENT_BYTES] for start in range(0, len(data), SEGMENT_BYTES)]


# Segments, altered by the host that stores them.


@ATTACKS.add(
    "segment-flipped",
    by=HOST,
    covers="sealed segment flipped",
    error=SealedRefused,
    code="segment_invalid",
)
def segment_flipped(stage: Stage) -> Step:
    sealed = three_segments(stage)
    data = bytearray(sealed.stream(1).read_bytes())
    data[SEGMENT_BYTES + 7] ^= 0x01
    sealed.stream(1).write_bytes(data)
    return sealed.open


@ATTACKS.add(
    "segment-header-flipped",
    by=HOST,
    covers="sealed segment flipped",
    error=SealedRefused,
    code="segment_invalid",
)
def segment_header_flipped(stage: Stage) -> Step:
    sealed = three_segments(stage)
    data = bytearray(sealed.stream(1).read_bytes())
    data[20] ^= 0x80
    sealed.stream(1).write_bytes(data)
    return sealed.open


@ATTACKS.add(
    "segment-reordered",
    by=HOST,
    covers="sealed segment reordered",
    error=SealedRefused,
    code="segment_invalid",
)
def segment_reordered(stage: Stage) -> Step:
    sealed = seal_tree(stage.folder / "artifact", {"a": os.urandom(FIRST + 2 * NEXT + 9)})
    first, second, third, last = segments(sealed)
    sealed.stream(1).write_bytes(first + third + second + last)
    return sealed.open


@ATTACKS.add(
    "segment-dropped",
    by=HOST,
    covers="sealed segment dropped",
    error=SealedRefused,
    code="stream_truncated",
)
def segment_dropped(stage: Stage) -> Step:
    sealed = three_segments(stage)
    first, _, last = segments(sealed)
    sealed.stream(1).write_bytes(first + last)
    return sealed.open


@ATTACKS.add(
    "segment-dropped-and-index-rewritten",
    by=HOST,
    covers="sealed segment dropped",
    error=SealedRefused,
    code="index_size_mismatch",
)
def segment_dropped_and_index_rewritten(stage: Stage) -> Step:
    """The last segment is cut off and the public index says that all is well."""
    sealed = three_segments(stage)
    first, second, _ = segments(sealed)
    sealed.stream(1).write_bytes(first + second)
    sizes = [sealed.stream(number).stat().st_size for number in range(3)]
    rewrite_index(sealed.directory, streams=tuple(sizes))
    return sealed.open


@ATTACKS.add(
    "segment-duplicated",
    by=HOST,
    covers="sealed segment duplicated",
    error=SealedRefused,
    code="stream_trailing",
)
def segment_duplicated(stage: Stage) -> Step:
    sealed = three_segments(stage)
    first, second, last = segments(sealed)
    sealed.stream(1).write_bytes(first + second + second + last)
    return sealed.open


@ATTACKS.add(
    "segment-duplicated-over-another",
    by=HOST,
    covers="sealed segment duplicated",
    error=SealedRefused,
    code="segment_invalid",
)
def segment_duplicated_over_another(stage: Stage) -> Step:
    sealed = seal_tree(stage.folder / "artifact", {"a": os.urandom(FIRST + 2 * NEXT + 9)})
    first, second, _, last = segments(sealed)
    sealed.stream(1).write_bytes(first + second + second + last)
    return sealed.open


@ATTACKS.add(
    "segment-truncated",
    by=HOST,
    covers="sealed segment truncated",
    error=SealedRefused,
    code="stream_truncated",
)
def segment_truncated(stage: Stage) -> Step:
    sealed = three_segments(stage)
    os.truncate(sealed.stream(2), sealed.stream(2).stat().st_size - 1)
    return sealed.open


@ATTACKS.add(
    "segment-of-another-file",
    by=HOST,
    covers="sealed segment from another file",
    error=SealedRefused,
    code="segment_invalid",
)
def segment_of_another_file(stage: Stage) -> Step:
    """The same place of a file of the same size, under the same key."""
    sealed = three_segments(stage)
    ours, theirs = segments(sealed), segments(sealed, 2)
    sealed.stream(1).write_bytes(ours[0] + theirs[1] + ours[2])
    return sealed.open


@ATTACKS.add(
    "files-exchanged",
    by=HOST,
    covers="sealed segment from another file",
    error=SealedRefused,
    code="segment_invalid",
)
def files_exchanged(stage: Stage) -> Step:
    """Two whole files, header and all, in each other's place."""
    sealed = three_segments(stage)
    ours, theirs = sealed.stream(1).read_bytes(), sealed.stream(2).read_bytes()
    sealed.stream(1).write_bytes(theirs)
    sealed.stream(2).write_bytes(ours)
    return sealed.open


@ATTACKS.add("stream-withheld", by=HOST, error=SealedRefused, code="stream_missing")
def stream_withheld(stage: Stage) -> Step:
    sealed = three_segments(stage)
    sealed.stream(2).unlink()
    return sealed.open


@ATTACKS.add("key-wrong", by=MODEL_OWNER, error=SealedRefused, code="segment_invalid")
def key_wrong(stage: Stage) -> Step:
    sealed = three_segments(stage)
    return lambda: sealed.open(key=os.urandom(32))


# What the workload's own store holds.


def open_stored(stage: Stage, workload: Workload, artifact: str) -> OpenedArtifact:
    """As a run opens it: out of the upload store, under the plan's terms."""
    role = MODEL_OWNER if artifact == "model" else EVALUATOR
    secret = load_secret(stage.side(role).state, artifact)
    terms = stage.scene.directory.plan.artifact(artifact)
    with workload.desks[workload.plan].stores[artifact].open_source() as source:
        return open_artifact(
            source, secret.key, secret.salt, terms.commitment, MemfdMemory(), terms, 2
        )


def stored(workload: Workload, artifact: str, stream: int) -> Path:
    store = workload.desks[workload.plan].stores[artifact]
    return store.directory / "data" / f"{stream:08d}.sealed"


@ATTACKS.add(
    "stored-weights-flipped",
    by=HOST,
    covers="sealed segment flipped",
    error=SealedRefused,
    code="segment_invalid",
)
def stored_weights_flipped(stage: Stage) -> Step:
    workload = stage.workload(uploaded=True)
    assert open_stored(stage, workload, "model").files
    data = bytearray(stored(workload, "model", 3).read_bytes())
    data[-1] ^= 0x01
    stored(workload, "model", 3).write_bytes(data)
    return lambda: open_stored(stage, workload, "model")


@ATTACKS.add(
    "stored-file-made-a-link",
    by=HOST,
    covers="manifest with a link",
    error=UploadRefused,
    code="upload_storage_failed",
)
def stored_file_made_a_link(stage: Stage) -> Step:
    """The host puts a link to a file of the enclave's in the place of a stored one."""
    workload = stage.workload(uploaded=True)
    place = stored(workload, "suite", 1)
    kept = shutil.move(place, stage.folder / "elsewhere")
    place.symlink_to(kept)
    return lambda: open_stored(stage, workload, "suite")
