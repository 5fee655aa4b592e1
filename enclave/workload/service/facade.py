"""What the network compartment asks of the broker.

The service authenticates the caller, maps it to its role in the plan and
refuses wrong roles; everything behind that is the facade's.  `plan` is the
plan's digest, `role` the caller's.  Methods raise `Refusal` (or
`AttestationError`), both cross the channel typed; anything else reaches the
caller as `internal` without text.  Calls come from many threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from enclave.core.plan import Plan
from enclave.wire.messages import AttestReply, Progress, SessionView
from enclave.workload.service.upload_store import UploadStore


class EnclaveFacade(Protocol):
    """The broker, seen from the network."""

    def plans(self) -> Mapping[str, Plan]:
        """Every registered plan by digest; cheap, it is read on each call."""

    def view_session(self, plan: str) -> SessionView:
        """The session's public state."""

    def attest(self, plan: str, role: str, nonce: bytes) -> AttestReply:
        """Evidence over the caller's 32-byte nonce."""

    def submit_approval(self, plan: str, role: str, envelope: bytes) -> None:
        """Take the caller's approval."""

    def submit_party_evidence(self, plan: str, role: str, evidence: bytes) -> str:
        """Appraise the caller's hardware evidence; returns its digest."""

    def upload_store(self, plan: str, artifact: str) -> UploadStore:
        """The ciphertext store of an artifact; the same object for each call."""

    def artifact_uploaded(self, plan: str, artifact: str) -> None:
        """The store of `artifact` just became complete."""

    def submit_grant(self, plan: str, role: str, grant: bytes) -> None:
        """Take a key grant of the caller."""

    def start_run(self, plan: str, role: str) -> int:
        """Start the next run and return its number at once."""

    def watch_run(self, plan: str, run: int) -> Iterator[Progress]:
        """Progress until the run ends.

        Yields at least every `WATCH_SECONDS`, repeating the last progress if nothing
        moved, so that the thread of a gone watcher comes free.  The last item's
        state is `finished` or `refused`.
        """

    def release(self, plan: str, role: str, run: int, view: str) -> bytes:
        """The view sealed to the caller's role."""

    def receipt(self, plan: str, run: int) -> bytes:
        """The receipt of a finished run."""

    def renew_session(self, plan: str, role: str) -> None:
        """Throw the session's keys away and begin a new one."""
