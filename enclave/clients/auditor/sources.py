"""What an auditor judges by: roots, policies and documents, and where each came from.

A receipt carries digests of the policies, never the policies.  They come from
the auditor's own files, from a plan directory, or from what lies beside the
receipt; the report says which.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from attestation.parse.trust_roots import parse_trust_roots
from attestation.types import TrustRoots
from enclave.clients.party.plan_directory import (
    DOCUMENTS_FOLDER,
    read_file,
    read_plan_directory,
)
from enclave.core.canonical import (
    MAX_DOCUMENT_BYTES,
    digest_bytes,
    parse_json_object,
    print_canonical,
)

GIVEN = "given"
FROM_PLAN = "the plan directory"
BESIDE = "beside the receipt"
MISSING = "none"
SHARED = "none: others can write beside the receipt"
ROOTS_FILE = "roots.pem"


@dataclass(frozen=True)
class AuditSources:
    """policy, reference_values: the auditor's own, canonical bytes, else None.

    documents: other documents by digest.  origins: name to where it came from.
    expected_plan: digest of the plan directory given, if one was.
    documents_beside: the documents lay beside the receipt.
    """

    roots: TrustRoots | None
    policy: bytes | None
    reference_values: bytes | None
    documents: Mapping[str, bytes]
    origins: Mapping[str, str]
    expected_plan: str | None
    documents_beside: bool = False


def find_sources(
    receipt: Path,
    *,
    roots: Path | None = None,
    policy: Path | None = None,
    reference_values: Path | None = None,
    plan: Path | None = None,
) -> AuditSources:
    """Read what was given; for what was not, look into the plan directory, then beside the receipt.

    Files named by digest count only where their bytes have that digest.
    """
    origins: dict[str, str] = {}
    documents: dict[str, bytes] = {}
    expected_plan = None
    beside = receipt.parent
    near = _is_private(beside)
    if plan is not None:
        directory = read_plan_directory(plan)
        documents |= directory.documents
        expected_plan = directory.plan.digest
    elif near:
        documents |= _read_documents(beside / DOCUMENTS_FOLDER)
    roots_path = roots
    if roots is None and near and _is_private(beside / ROOTS_FILE):
        roots_path = beside / ROOTS_FILE
    nowhere = MISSING if near else SHARED
    origins["roots"] = GIVEN if roots is not None else BESIDE if roots_path is not None else nowhere
    elsewhere = FROM_PLAN if plan is not None else BESIDE if documents else nowhere
    origins["policy"] = GIVEN if policy is not None else elsewhere
    origins["reference_values"] = GIVEN if reference_values is not None else elsewhere
    origins["result_policy"] = elsewhere
    return AuditSources(
        roots=None if roots_path is None else _read_roots(roots_path),
        policy=_read_authored(policy),
        reference_values=_read_authored(reference_values),
        documents=documents,
        origins=origins,
        expected_plan=expected_plan,
        documents_beside=plan is None,
    )


def _is_private(path: Path) -> bool:
    """Whether only this user (or root) can have put `path` there: no link, nobody else's."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    mode = stat.S_IMODE(found.st_mode)
    shared = mode & stat.S_IWOTH or (mode & stat.S_IWGRP and found.st_gid != os.getegid())
    return not stat.S_ISLNK(found.st_mode) and not shared and found.st_uid in (0, os.geteuid())


def _read_roots(path: Path) -> TrustRoots:
    return parse_trust_roots(simulated=read_file(path, max_bytes=64 * 1024))


def _read_authored(path: Path | None) -> bytes | None:
    if path is None:
        return None
    return print_canonical(parse_json_object(read_file(path, max_bytes=MAX_DOCUMENT_BYTES)))


def _read_documents(folder: Path) -> dict[str, bytes]:
    if not folder.is_dir() or not _is_private(folder):
        return {}
    found = {}
    for path in sorted(filter(_is_private, folder.glob("*.json"))):
        data = read_file(path, max_bytes=MAX_DOCUMENT_BYTES)
        if digest_bytes(data) == path.stem:
            found[path.stem] = data
    return found
