"""`bundle.toml`: closed, and each fault has its code."""

from __future__ import annotations

from pathlib import Path

import pytest

import enclave.cli.demo_assets as assets
from enclave.core.errors import RunRefused
from enclave.workload.sandbox.bundle import parse_manifest, read_manifest

BUNDLE = Path(assets.__file__).parent / "bundle"
GOOD = (BUNDLE / "bundle.toml").read_text()

FAULTS: dict[str, tuple[str, str]] = {
    "not TOML": ("= 1", "bundle_manifest_malformed"),
    "not UTF-8": ("\udcff", "bundle_manifest_malformed"),
    "no kind": (GOOD.replace('kind = "python"\n', ""), "bundle_kind_unknown"),
    "another kind": (GOOD.replace('"python"', '"inspect"'), "bundle_kind_unknown"),
    "kind not text": (GOOD.replace('"python"', "1"), "bundle_kind_unknown"),
    "entry outside": (GOOD.replace("score.py:", "../score.py:"), "bundle_entry_malformed"),
    "entry a command": (GOOD.replace("score.py:evaluate", "sh -c x"), "bundle_entry_malformed"),
    "environment unknown": (GOOD.replace("python-stdlib", "lm-eval"), "bundle_environment_unknown"),
    "unknown need": (GOOD.replace('"chat",', '"tools",'), "bundle_manifest_malformed"),
    "unknown key": ("extra = 1\n" + GOOD, "bundle_manifest_malformed"),
    "unknown limit": (GOOD + "\nextra = 1\n", "bundle_manifest_malformed"),
    "no limits": (GOOD[: GOOD.index("[limits]")], "bundle_manifest_malformed"),
    "no outputs": (GOOD.replace("[outputs]", "[outputs_]"), "bundle_manifest_malformed"),
    "metric twice": (
        GOOD.replace('"truthfulqa_mc1_baseline"', '"truthfulqa_mc1_accuracy"'),
        "bundle_manifest_malformed",
    ),
    "suite file outside": (
        GOOD.replace('"arithmetic.jsonl"', '"../secret"'),
        "bundle_manifest_malformed",
    ),
    "too large": (GOOD + "#" * 65536, "bundle_manifest_malformed"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_has_its_code(name: str) -> None:
    text, code = FAULTS[name]
    with pytest.raises(RunRefused) as refused:
        parse_manifest(text.encode("utf-8", "surrogateescape"))
    assert refused.value.code == code


def test_the_demonstration_bundle_is_well_formed() -> None:
    manifest = read_manifest(BUNDLE)
    assert (manifest.module, manifest.function) == ("score", "evaluate")
    assert manifest.controls == ("null_answer", "oracle")


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(RunRefused, match="bundle_manifest_missing"):
        read_manifest(tmp_path)
