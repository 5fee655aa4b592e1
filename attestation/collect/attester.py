"""What every attester can do."""

from __future__ import annotations

from typing import Protocol

from attestation.types.evidence import EvidenceBundle


class Attester(Protocol):
    """Produces evidence that binds 64 bytes chosen by the caller."""

    @property
    def kind(self) -> str:
        """The kind of the evidence, for example `sev-snp`."""

    def collect_evidence(self, report_data: bytes) -> EvidenceBundle:
        """Evidence whose REPORT_DATA is exactly `report_data` (64 bytes). Raises CollectError."""

    def root_certificates(self) -> bytes:
        """PEM of the attester's own root: simulated kinds only, empty for hardware."""
