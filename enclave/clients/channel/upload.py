"""Sending a sealed artifact, resuming where the workload's store stands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from enclave.clients.channel.client import EnclaveClient
from enclave.core.plan import Plan
from enclave.wire.messages import UploadReport


def upload_artifact(
    client: EnclaveClient,
    plan: Plan,
    artifact: str,
    directory: Path,
    progress: Callable[[int, int], None] | None = None,
) -> UploadReport:
    """Upload the sealed directory of `artifact`; only missing segments are sent.

    `progress(durable_bytes, total_bytes)` is called as the workload acknowledges.
    A broken connection is taken up again with back-off, a bounded number of times
    without progress.  Raises UploadRefused (`upload_busy`, `upload_disk_full`,
    `upload_commitment_mismatch`, `upload_too_large`, `upload_source_changed`, ...)
    and ChannelRefused.
    """
    raise NotImplementedError
