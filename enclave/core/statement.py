"""in-toto Statement v1, closed: SHA-256 subjects only, canonical bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from enclave.core.canonical import parse_canonical, print_canonical
from enclave.core.fields import Fields
from enclave.core.vocabulary import DIGEST_SIZE

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"


@dataclass(frozen=True)
class Statement:
    """A statement: (name, SHA-256 hex) subjects, its predicate type and predicate object."""

    subject: tuple[tuple[str, str], ...]
    predicate_type: str
    predicate: Mapping[str, Any]

    def to_bytes(self) -> bytes:
        """The statement as RFC 8785 bytes: the payload of an envelope."""
        return print_canonical(
            {
                "_type": STATEMENT_TYPE,
                "subject": [
                    {"name": name, "digest": {"sha256": digest}} for name, digest in self.subject
                ],
                "predicateType": self.predicate_type,
                "predicate": dict(self.predicate),
            }
        )


def read_statement(
    payload: bytes, predicate_type: str, names: tuple[str, ...], *, max_bytes: int
) -> Statement:
    """Read a statement of one predicate type about exactly these subjects, in this order."""
    fields = Fields(parse_canonical(payload, max_bytes=max_bytes), "statement")
    fields.constant("_type", STATEMENT_TYPE)
    fields.constant("predicateType", predicate_type)
    entries = fields.array("subject", len(names), len(names))
    subject = []
    for index, (name, entry) in enumerate(zip(names, entries, strict=True)):
        part = Fields(entry, f"statement.subject[{index}]")
        part.constant("name", name)
        digest = part.object("digest")
        subject.append((name, digest.hex("sha256", DIGEST_SIZE)))
        digest.done()
        part.done()
    predicate = fields.mapping("predicate", 1, 64)
    fields.done()
    return Statement(tuple(subject), predicate_type, predicate)
