"""Every error code with its stage, its meaning and the next step.

The text lies in error_catalogue.toml; `python -m enclave.cli.error_catalogue`
prints docs/errors.md from it, and a test compares both with the code's literals.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_SOURCE = Path(__file__).with_name("error_catalogue.toml")


@dataclass(frozen=True)
class Explanation:
    """What one code means and what to do."""

    stage: str
    code: str
    meaning: str
    next_step: str


@cache
def read_catalogue() -> Mapping[str, Mapping[str, Explanation]]:
    """Every explanation, by stage and code (or by `prefix*`)."""
    stages = tomllib.loads(_SOURCE.read_text("utf-8"))
    return {stage: dict(_read_stage(stage, entries)) for stage, entries in stages.items()}


def _read_stage(stage: str, entries: Mapping[str, Any]) -> Iterator[tuple[str, Explanation]]:
    default = entries.get("_next", "")
    for code, value in entries.items():
        if code != "_next":
            meaning, next_step = (value, default) if isinstance(value, str) else value
            yield code, Explanation(stage, code, meaning, next_step)


def explain_code(stage: str, code: str) -> Explanation | None:
    """The explanation of a code: its own, else that of the longest prefix its stage has."""
    entries = read_catalogue().get(stage, {})
    if code in entries:
        return entries[code]
    prefixes = [key for key in entries if key.endswith("*") and code.startswith(key[:-1])]
    return entries[max(prefixes, key=len)] if prefixes else None


def print_errors_page() -> str:
    """docs/errors.md."""
    lines = [
        "# Errors",
        "",
        "Every refusal has a stage and a stable code. `--json` prints them as",
        '`{"error": {"stage", "code", "expected", "got", "hint", ...}}`; no field ever holds',
        "content of a secret. Exit codes are in [cli.md](cli.md).",
        "",
        "A code that ends in `*` stands for all that begin so and are not listed themselves.",
        "",
        "This page is printed from `enclave/cli/error_catalogue.toml` by",
        "`python -m enclave.cli.error_catalogue`.",
    ]
    for stage, entries in read_catalogue().items():
        lines += [
            "",
            f"## {stage}",
            "",
            "| code | stage | meaning | next step |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| `{entry.code}` | {stage} | {entry.meaning} | {entry.next_step} |"
            for entry in entries.values()
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(print_errors_page(), end="")
