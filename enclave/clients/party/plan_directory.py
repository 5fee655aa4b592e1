"""A plan on disk: `plan.json` and the documents it pins, each found by its digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from enclave.clients.party.state import sync_directory, write_atomically
from enclave.core.canonical import MAX_DOCUMENT_BYTES, digest_bytes
from enclave.core.errors import DocumentRefused, PlanRefused
from enclave.core.plan import MAX_PLAN_BYTES, Plan, parse_plan

PLAN_FILE = "plan.json"
DOCUMENTS_FOLDER = "documents"


@dataclass(frozen=True)
class PlanDirectory:
    """A plan and the exact bytes of every document it pins, by digest."""

    plan: Plan
    documents: Mapping[str, bytes]

    @property
    def attestation_policy(self) -> bytes:
        return self.documents[self.plan.attestation_policy]

    @property
    def reference_values(self) -> bytes:
        return self.documents[self.plan.reference_values]

    @property
    def result_policy(self) -> bytes:
        return self.documents[self.plan.result_policy]


def read_plan_directory(folder: Path) -> PlanDirectory:
    """Read a plan and every document it pins.

    Raises PlanRefused `plan_document_missing`, `plan_document_digest`.
    """
    plan = parse_plan(read_file(folder / PLAN_FILE, max_bytes=MAX_PLAN_BYTES))
    documents = {
        digest: read_document(folder / DOCUMENTS_FOLDER, digest) for digest in plan.documents()
    }
    return PlanDirectory(plan, documents)


def read_document(folder: Path, digest: str) -> bytes:
    """The document with this digest out of a folder of `<sha256>.json` files."""
    path = folder / f"{digest}.json"
    if not path.is_file():
        raise PlanRefused(
            "plan_document_missing",
            expected=str(path),
            hint="ask the other side for the whole plan directory, documents/ included",
        )
    data = read_file(path, max_bytes=MAX_DOCUMENT_BYTES)
    if digest_bytes(data) != digest:
        raise PlanRefused("plan_document_digest", expected=digest, got=digest_bytes(data))
    return data


def write_plan_directory(folder: Path, directory: PlanDirectory) -> None:
    """Write a new plan directory; `plan.json` comes last.

    Raises PlanRefused `plan_directory_exists` when a plan is there already.
    """
    if (folder / PLAN_FILE).exists():
        raise PlanRefused(
            "plan_directory_exists",
            expected="a folder without a plan",
            got=str(folder),
            hint="a plan is never overwritten: choose another folder, then `plan diff` both",
        )
    (folder / DOCUMENTS_FOLDER).mkdir(parents=True, exist_ok=True)
    sync_directory(folder)
    for digest, data in sorted(directory.documents.items()):
        write_atomically(folder / DOCUMENTS_FOLDER / f"{digest}.json", data, mode=0o644)
    write_atomically(folder / PLAN_FILE, directory.plan.to_bytes(), mode=0o644)


def read_file(path: Path, *, max_bytes: int) -> bytes:
    """Read a bounded file. Raises DocumentRefused `document_too_large`."""
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise DocumentRefused("document_too_large", expected=f"{path}: at most {max_bytes} bytes")
    return data
