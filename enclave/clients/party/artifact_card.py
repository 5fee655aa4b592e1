"""What a party tells the other about a sealed artifact, so that a plan can name it.

The card is public: a commitment and rounded-up limits.  A bundle's card, whose code
both parties read, adds its salt and environment; a model's the digest of its template.
"""

from __future__ import annotations

from dataclasses import dataclass

from enclave.core.canonical import parse_canonical, print_canonical
from enclave.core.fields import Fields
from enclave.core.vocabulary import ARTIFACTS, BASE, DIGEST_SIZE

ARTIFACT_CARD_TYPE = f"{BASE}/artifact-card/v1"
MAX_CARD_BYTES = 4096
MAX_ARTIFACT_BYTES = 2**44
MAX_ARTIFACT_FILES = 100_000
_MIN_ROUNDED_BYTES = 2**16


@dataclass(frozen=True)
class ArtifactCard:
    """commitment, salt, template_sha256: hex.

    `salt` and `environment` are there for a bundle only, `template_sha256` for a model only.
    """

    artifact: str
    commitment: str
    max_bytes: int
    max_files: int
    salt: str | None
    environment: str | None
    template_sha256: str | None

    def to_bytes(self) -> bytes:
        """The card as RFC 8785 bytes."""
        fields: dict[str, object] = {
            "type": ARTIFACT_CARD_TYPE,
            "artifact": self.artifact,
            "commitment": self.commitment,
            "max_bytes": self.max_bytes,
            "max_files": self.max_files,
        }
        if self.artifact == "bundle":
            fields["salt"] = self.salt
            fields["environment"] = self.environment
        if self.artifact == "model":
            fields["template_sha256"] = self.template_sha256
        return print_canonical(fields)


def parse_artifact_card(data: bytes) -> ArtifactCard:
    """Parse a card (canonical bytes, closed)."""
    fields = Fields(parse_canonical(data, max_bytes=MAX_CARD_BYTES), "artifact card")
    fields.constant("type", ARTIFACT_CARD_TYPE)
    artifact = fields.constant("artifact", *ARTIFACTS)
    card = ArtifactCard(
        artifact=artifact,
        commitment=fields.hex("commitment", DIGEST_SIZE),
        max_bytes=fields.integer("max_bytes", 1, MAX_ARTIFACT_BYTES),
        max_files=fields.integer("max_files", 1, MAX_ARTIFACT_FILES),
        salt=fields.hex("salt", DIGEST_SIZE) if artifact == "bundle" else None,
        environment=fields.identifier("environment") if artifact == "bundle" else None,
        template_sha256=(
            fields.hex("template_sha256", DIGEST_SIZE) if artifact == "model" else None
        ),
    )
    fields.done()
    return card


def round_up(count: int, *, low: int = 1) -> int:
    """The next power of two: a limit that does not tell the exact size."""
    return max(low, 1 << max(0, count - 1).bit_length())


def make_card(
    artifact: str,
    *,
    commitment: str,
    total_bytes: int,
    files: int,
    salt: bytes,
    environment: str | None = None,
    template_sha256: str | None = None,
) -> ArtifactCard:
    """The card of an artifact with `files` files of `total_bytes` bytes."""
    return ArtifactCard(
        artifact=artifact,
        commitment=commitment,
        max_bytes=min(round_up(total_bytes, low=_MIN_ROUNDED_BYTES), MAX_ARTIFACT_BYTES),
        max_files=min(round_up(files), MAX_ARTIFACT_FILES),
        salt=salt.hex() if artifact == "bundle" else None,
        environment=environment if artifact == "bundle" else None,
        template_sha256=template_sha256 if artifact == "model" else None,
    )
