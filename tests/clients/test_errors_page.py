"""docs/errors.md knows every code that the sources can raise."""

from __future__ import annotations

from pathlib import Path

import pytest

from attestation.appraise import RULES
from enclave.cli.error_catalogue import explain_code, print_errors_page, read_catalogue
from tests.clients.codes import STAGES, literal_codes

ROOT = Path(__file__).resolve().parents[2]
FOUND = literal_codes("enclave", "attestation")


def test_codes_are_found() -> None:
    assert len(FOUND) >= 300


@pytest.mark.parametrize("code", sorted(FOUND))
def test_every_code_is_explained(code: str) -> None:
    stages = {STAGES[name] for place in FOUND[code] if (name := place.rpartition(":")[2]) in STAGES}
    for stage in stages:
        assert explain_code(stage, code) is not None, (stage, code, FOUND[code])
    # A refusal built by a function of its own shows its class elsewhere: some stage has it.
    assert stages or any(explain_code(stage, code) for stage in read_catalogue()), code


def test_every_appraisal_rule_is_explained() -> None:
    seen = 0
    for kind, rules in RULES.items():
        for rule in rules:
            code = rule.code or f"{kind}_{rule.name}".replace("-", "_").replace(".", "_")
            assert explain_code("appraise", code) is not None, code
            seen += 1
    assert seen >= 20


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
