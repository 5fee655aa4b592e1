"""Every refusal code that the sources can raise, found by reading them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from attestation import errors as attestation_errors
from enclave.cli import failures  # noqa: F401 - every refusal class is imported below it
from enclave.clients.party import errors as client_errors
from enclave.core import errors as core_errors
from enclave.wire import errors as wire_errors

ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+\Z")
STAGES: dict[str, str] = {
    name: value.stage
    for module in (core_errors, wire_errors, client_errors, attestation_errors)
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, Exception) and hasattr(value, "stage")
}


def _called(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


def _strings(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def _codes_of(node: ast.Call) -> Iterator[tuple[str, str]]:
    """(class or function called, code): a literal given to a refusal or a `refuse` function."""
    name = _called(node)
    places: list[ast.AST] = [k.value for k in node.keywords if k.arg == "code"]
    if name in STAGES or "refus" in name.lower():
        places += node.args[:1]
    for place in places:
        for text in _strings(place):
            if CODE.match(text):
                yield name, text


def literal_codes(*packages: str) -> dict[str, set[str]]:
    """Code to the places (`file:callee`) that raise it."""
    found: dict[str, set[str]] = {}
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            if {"generated", "demo_assets"} & set(path.parts):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    for name, code in _codes_of(node):
                        found.setdefault(code, set()).add(f"{path.relative_to(ROOT)}:{name}")
    return found


def print_listing() -> None:
    """List codes by stage, for whoever writes the catalogue."""
    rows = []
    for code, places in literal_codes("enclave", "attestation").items():
        stages = {STAGES.get(place.rpartition(":")[2], "?") for place in places}
        rows.append((min(stages), code, ",".join(sorted(p.rpartition(":")[0] for p in places))))
    for row in sorted(rows):
        print(*row)


if __name__ == "__main__":
    print_listing()
