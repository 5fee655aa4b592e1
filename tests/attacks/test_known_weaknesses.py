"""Attacks that still succeed, each with its reason: an expected failure until it is mended."""

from __future__ import annotations

import pytest

from enclave.workload.broker.compartments import CoarseProgress


@pytest.mark.xfail(
    strict=True,
    reason="stages may interleave and steps may be skipped: progress carries hundreds of bits "
    "a run that the budget does not count",
)
def test_progress_says_no_more_than_how_far() -> None:
    """A hostile bundle writes a secret into the order of its progress; watchers read it."""
    transcripts = set()
    for secret in range(16):
        seen: list[tuple[str, int, int]] = []
        progress = CoarseProgress(lambda *step, seen=seen: seen.append(step))
        for bit in range(4):
            stage = f"stage-{secret >> bit & 1}"
            progress.accept({"op": "progress", "stage": stage, "done": bit + 1, "total": 20})
        transcripts.add(tuple(seen))
    assert len(transcripts) == 1
