"""Sealed artifacts: stream format, manifest, index, commitment. Pure; see docs/spec."""

from enclave.core.sealed.commitment import compute_commitment, verify_commitment
from enclave.core.sealed.index import SealedIndex, parse_index
from enclave.core.sealed.manifest import ArtifactLimits, Manifest, ManifestFile, parse_manifest

__all__ = [
    "ArtifactLimits",
    "Manifest",
    "ManifestFile",
    "SealedIndex",
    "compute_commitment",
    "parse_index",
    "parse_manifest",
    "verify_commitment",
]
