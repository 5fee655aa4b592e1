"""Every refusal of the core documents is on a spec page, and every page names real ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (
    "conventions",
    "plan",
    "result-policy",
    "approval",
    "binding",
    "grant",
    "release",
    "receipt",
)
STEMS = "plan|approval|binding|grant|release|receipt|result|control|policy|hpke|dsse|statement"
CODE = re.compile(rf"(?:{STEMS}|signing|tls)_[a-z_]+")
NOT_CODES = {
    # Names of functions, modules and fields that look like codes.
    "plan_diff", "plan_explain", "plan_id", "plan_terms", "result_policy", "result_bytes",
    "result_frame", "release_bytes", "release_view", "receipt_rules", "result_demo",
    "tls_certificate", "tls_spki_sha256", "hpke_key", "release_result", "grant_key",
    "policy_digest",
}  # fmt: skip
# `signing_key` and `tls_certificate` name a field and also the refusal of its value.
SOURCES = sorted(
    path
    for path in (ROOT / "enclave" / "core").glob("*.py")
    if path.stem not in ("session", "errors", "canonical", "fields", "times")
)


def codes_in_source() -> set[str]:
    found: set[str] = set()
    for path in SOURCES:
        found |= {
            literal
            for literal in re.findall(r'"([a-z_]+)"', path.read_text())
            if CODE.fullmatch(literal)
        }
    return found - NOT_CODES


def codes_on_pages() -> set[str]:
    text = "".join((ROOT / "docs" / "spec" / f"{page}.md").read_text() for page in PAGES)
    return {word for word in re.findall(r"`([a-z_]+)`", text) if CODE.fullmatch(word)} - NOT_CODES


def test_pages_and_code_name_the_same_refusals() -> None:
    assert len(codes_in_source()) >= 70
    assert codes_in_source() - codes_on_pages() == set()
    assert codes_on_pages() - codes_in_source() == set()


def test_every_refusal_has_a_test() -> None:
    tests = "".join(
        path.read_text()
        for path in Path(__file__).parent.glob("test_*.py")
        if path.name != Path(__file__).name
    )
    # Sealing to a key that parsed cannot fail; the refusal is there all the same.
    untested = {code for code in codes_in_source() if f'"{code}"' not in tests} - {"hpke_seal"}
    assert untested == set()


@pytest.mark.parametrize("page", PAGES[1:])
def test_pages_have_one_shape(page: str) -> None:
    text = (ROOT / "docs" / "spec" / f"{page}.md").read_text()
    for title in ("Introduction", "Conventions", "Format", "Test vectors"):
        assert f"\n## {title}\n" in text, title
    for name in re.findall(r"`((?:enclave|tests|policies)/[\w/.-]+\.\w+)`", text):
        assert (ROOT / name).exists(), name
