"""Rules of the architecture that neither ruff nor import-linter can hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PURE = (
    "enclave/core",
    *("attestation/parse", "attestation/verify", "attestation/appraise", "attestation/types"),
)
MAX_LINES = 400
VERDICT_PREFIXES = ("verify_", "appraise_", "grant_", "release_")
FORBIDDEN_NAMES = ("utils", "helpers", "manager", "misc", "common")
AMBIENT_CALLS = {
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}


def sources(*roots: str) -> list[Path]:
    return [
        path
        for root in roots
        for path in sorted((ROOT / root).rglob("*.py"))
        if "generated" not in path.parts
    ]


ALL = sources("enclave", "attestation", "images")


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_sources_are_found() -> None:
    assert len(ALL) >= 60


@pytest.mark.parametrize("path", ALL, ids=lambda p: str(p.relative_to(ROOT)))
def test_file(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert text.count("\n") <= MAX_LINES, "split it: one purpose a file"
    assert path.stem not in FORBIDDEN_NAMES
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Assert), "python -O removes assert: raise instead"
    for function in functions(tree):
        assert not function.name.startswith(("check_", "handle_", "_check_", "_handle_"))
        if function.name.startswith(VERDICT_PREFIXES):
            returns = ast.unparse(function.returns) if function.returns else ""
            assert "bool" not in returns.split("|"), f"{function.name}: a verdict is raised"
            assert returns != "bool"
            assert "None" not in [part.strip() for part in returns.split("|")[1:]], function.name


@pytest.mark.parametrize("path", sources(*PURE), ids=lambda p: str(p.relative_to(ROOT)))
def test_pure_room(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = node.func
        if isinstance(name, ast.Name):
            assert name.id not in {"open", "print", "input", "eval", "exec", "__import__"}
        if isinstance(name, ast.Attribute) and isinstance(name.value, ast.Name):
            assert (name.value.id, name.attr) not in AMBIENT_CALLS, "time is an argument"
