"""How a command that failed ends: the rule, what was expected, what to do next, an exit code.

Never a traceback: DOUBLEBLIND_DEBUG=1 brings it back.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from attestation.errors import AttestationError
from enclave.cli.error_catalogue import explain_code
from enclave.cli.exit_codes import ExitCode, exit_code_of
from enclave.cli.untrusted import printable
from enclave.core.errors import Refusal


def report_failure(error: BaseException, *, as_json: bool) -> int:
    """Print what ended the command and return its exit code."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else ExitCode.MISUSE
    if isinstance(error, BrokenPipeError):
        # The reader of stdout went away, as `head` does: nothing to say, and nowhere to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.MISUSE
    described = describe_failure(error)
    if as_json:
        sys.stdout.write(json.dumps({"error": described}, sort_keys=True) + "\n")
        sys.stdout.flush()
    else:
        _print_for_people(described)
    return exit_code_of(error)


def describe_failure(error: BaseException) -> dict[str, Any]:
    """The failure as a JSON object: stage, code, expected, got, hint, and findings if any."""
    if isinstance(error, Refusal):
        described: dict[str, Any] = dict(error.as_json())
    elif isinstance(error, click.ClickException):
        described = _describe("usage", "usage", got=error.format_message())
    elif isinstance(error, (KeyboardInterrupt, click.Abort)):
        described = _describe("usage", "interrupted", hint="nothing is lost: run it again")
    elif isinstance(error, OSError):
        # strerror and a path of the caller's own machine; no content of any file.
        described = _describe(
            "system", "operating_system", got=f"{error.strerror}: {error.filename}"
        )
    elif isinstance(error, AttestationError):
        described = _describe(error.stage, error.code)
        described["findings"] = error.as_json()["findings"]
    else:
        described = _describe(
            "internal",
            "unexpected",
            got=type(error).__name__,
            hint="set DOUBLEBLIND_DEBUG=1 to see where; please report it",
        )
    explained = explain_code(described["stage"], described["code"])
    if explained is not None:
        described["meaning"] = explained.meaning
        described["hint"] = described["hint"] or explained.next_step
    return described


def _describe(stage: str, code: str, *, got: str = "", hint: str = "") -> dict[str, Any]:
    return {"stage": stage, "code": code, "expected": "", "got": got, "hint": hint}


def _print_for_people(described: dict[str, Any]) -> None:
    console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
    console.print(
        Text.assemble(
            ("✗ ", "red bold"),
            (described.get("meaning") or described["code"].replace("_", " "), "red bold"),
            (f"  [{described['stage']}: {described['code']}]", "dim"),
        )
    )
    for label, value in (
        ("Expected", described["expected"]),
        ("Got", described["got"]),
        ("Next", described["hint"]),
    ):
        if value:
            console.print(Text.assemble((f"  {label:<10}", "dim"), printable(value)))
    for found in described.get("findings", ()):
        text = f"  • {found['check']} {found['field']}".rstrip()
        line = f"{text}: expected {found['expected']}, got {found['got']}"
        console.print(Text(printable(line)))
