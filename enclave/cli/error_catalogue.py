"""Every error code with its stage, its meaning and the next step.

The text lies in error_catalogue.toml; `python -m enclave.cli.error_catalogue`
prints docs/errors.md from it, and a test compares both with the code's literals.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_SOURCE = Path(__file__).with_name("error_catalogue.toml")


@dataclass(frozen=True)
class Explanation:
    """What one code means and what to do."""

    stage: str
    code: str
    meaning: str
    next_step: str


@cache
def read_catalogue() -> Mapping[str, Explanation]:
    """Every explanation by code."""
    stages = tomllib.loads(_SOURCE.read_text("utf-8"))
    return {
        code: Explanation(stage, code, meaning, next_step)
        for stage, codes in stages.items()
        for code, (meaning, next_step) in codes.items()
    }


def explain_code(code: str) -> Explanation | None:
    """The explanation of a code, if there is one."""
    return read_catalogue().get(code)


def print_errors_page() -> str:
    """docs/errors.md."""
    lines = [
        "# Errors",
        "",
        "Every refusal has a stage and a stable code. `--json` prints them as",
        '`{"error": {"stage", "code", "expected", "got", "hint", ...}}`; no field ever holds',
        "content of a secret. Exit codes are in [cli.md](cli.md).",
        "",
        "This page is printed from `enclave/cli/error_catalogue.toml` by",
        "`python -m enclave.cli.error_catalogue`.",
    ]
    by_stage: dict[str, list[Explanation]] = {}
    for entry in read_catalogue().values():
        by_stage.setdefault(entry.stage, []).append(entry)
    for stage, entries in by_stage.items():
        lines += [
            "",
            f"## {stage}",
            "",
            "| code | stage | meaning | next step |",
            "|---|---|---|---|",
        ]
        lines += [f"| `{e.code}` | {stage} | {e.meaning} | {e.next_step} |" for e in entries]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(print_errors_page(), end="")
