"""docs/errors.md knows every code that the sources can raise."""

from __future__ import annotations

from pathlib import Path

import pytest

from enclave.cli.error_catalogue import explain_code, print_errors_page, read_catalogue
from tests.clients.codes import STAGES, literal_codes

ROOT = Path(__file__).resolve().parents[2]
ATTESTATION_STAGES = ("parse", "verify", "endorse", "appraise", "policy", "collect")
# A refusal made by a function of its own (`_refuse(...)`) has the stage of its class, which
# the sources' text does not show at the place of the code.
FOUND = literal_codes("enclave", "attestation")
# Suffixes that `DocumentKind.refuse` and `Checklist` put behind a prefix of their own.
COMPOSED = literal_codes("attestation")


def test_codes_are_found() -> None:
    assert len(FOUND) >= 300


@pytest.mark.parametrize("code", sorted(FOUND))
def test_every_code_is_explained(code: str) -> None:
    stages = {STAGES[name] for place in FOUND[code] if (name := place.rpartition(":")[2]) in STAGES}
    for stage in stages:
        assert explain_code(stage, code) is not None, (stage, code, FOUND[code])
    if stages:
        return
    if code in COMPOSED:
        # Raised as it stands or behind a prefix: either way a stage of attestation explains it.
        assert any(
            explain_code(stage, spelled) is not None
            for stage in ATTESTATION_STAGES
            for spelled in (code, f"policy_{code}", f"evidence_{code}")
        ), (code, FOUND[code])
        return
    assert any(explain_code(stage, code) for stage in read_catalogue()), (code, FOUND[code])


def test_the_page_is_printed_from_the_catalogue() -> None:
    assert (ROOT / "docs/errors.md").read_text() == print_errors_page()


def test_every_stage_has_a_section() -> None:
    assert set(STAGES.values()) - {"protocol", "attestation"} <= set(read_catalogue())


def test_every_entry_says_what_and_what_next() -> None:
    entries = [e for stage in read_catalogue().values() for e in stage.values()]
    assert len(entries) >= 300
    for entry in entries:
        assert entry.meaning.endswith("."), entry
        assert len(entry.next_step) > 8, entry
        assert "|" not in entry.meaning + entry.next_step
