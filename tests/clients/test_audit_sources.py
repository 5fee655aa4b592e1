"""What an auditor-deceiver lays beside a receipt, and what the audit makes of it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from attestation.errors import CheckState
from attestation.types import SIMULATED
from enclave.clients.auditor.audit import audit_receipt, describe_missing
from enclave.clients.auditor.evidence_checks import Judge, needs_own_policy
from enclave.clients.auditor.report import INCOMPLETE, NO_PLAN, VERIFIED
from enclave.clients.auditor.sources import BESIDE, SHARED, find_sources
from enclave.clients.party.plan_directory import PlanDirectory, write_plan_directory
from enclave.core.canonical import digest_bytes
from tests.clients.conftest import NOW
from tests.clients.test_audit import audit
from tests.clients.world import (
    World,
    later,
    make_facts,
    make_receipt,
    make_world,
    write_audit_folder,
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path / "world")


@pytest.fixture
def directory(world: World) -> PlanDirectory:
    return world.plan()


@pytest.fixture
def receipt(world: World, directory: PlanDirectory, tmp_path: Path) -> Path:
    data = make_receipt(world, make_facts(world, directory))
    return write_audit_folder(world, directory, data, tmp_path / "audit")


def share(path: Path, how: str, tmp_path: Path) -> None:
    if how == "writable":
        path.chmod(path.stat().st_mode | 0o002)
    elif how == "foreign":
        os.chown(path, 64099, -1)
    else:
        path.rename(tmp_path / f"moved-{path.name}")
        path.symlink_to(tmp_path / f"moved-{path.name}")


# Only root gives files away.
HOWS = ("writable", "link", "foreign") if os.geteuid() == 0 else ("writable", "link")


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("what", ["roots.pem", "documents", "."])
def test_what_others_can_lay_beside_the_receipt_does_not_count(
    receipt: Path, tmp_path: Path, what: str, how: str
) -> None:
    assert audit(receipt).verdict == VERIFIED
    share(receipt.parent / what if what != "." else receipt.parent, how, tmp_path)
    report = audit(receipt)
    assert report.verdict == INCOMPLETE
    judged = report.origins["policy" if what == "documents" else "roots"]
    assert judged != BESIDE
    if what == ".":
        assert set(report.origins.values()) == {SHARED}
        assert "--roots FILE" in describe_missing(find_sources(receipt))


def test_without_a_plan_of_ones_own_the_report_says_what_is_not_proven(
    receipt: Path, directory: PlanDirectory, tmp_path: Path
) -> None:
    assert NO_PLAN in audit(receipt).not_proven
    write_plan_directory(tmp_path / "plan", directory)
    assert NO_PLAN not in audit(receipt, plan=tmp_path / "plan").not_proven


def test_hardware_evidence_is_never_judged_by_what_lies_beside() -> None:
    beside = Judge(None, None, None, NOW, from_beside=True)
    assert not needs_own_policy((SIMULATED,), beside)
    for kinds in (("sev-snp",), ("tdx", "nvidia-gpu"), (SIMULATED, "sev-snp")):
        assert needs_own_policy(kinds, beside)
        assert not needs_own_policy(kinds, replace(beside, from_beside=False))


@pytest.mark.parametrize("name", ["attestation_policy", "reference_values"])
def test_a_policy_that_does_not_parse_is_a_failed_check(
    world: World, directory: PlanDirectory, tmp_path: Path, name: str
) -> None:
    """The plan's writer chose it, so its digest is right."""
    broken = b'{"type":"nothing"}'
    plan = replace(directory.plan, **{name: digest_bytes(broken)})
    documents = {**directory.documents, digest_bytes(broken): broken}
    twisted = PlanDirectory(plan, documents)
    data = make_receipt(world, make_facts(world, twisted))
    path = write_audit_folder(world, twisted, data, tmp_path / "audit")
    report = audit_receipt("r", data, find_sources(path), now=later(hours=2))
    states = {(c.stage, c.name): c.state for c in report.checks}
    assert states["policies", name] is CheckState.FAILED
    assert states["closing", "policy"] is CheckState.NOT_CHECKED
