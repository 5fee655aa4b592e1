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
    if isinstance(node, ast.JoinedStr):
        return  # put together at run time: the test that calls for it names it
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        yield from _strings(child)


# Functions that build a refusal of one class, and the rooms whose rules are judged by one class.
BUILDERS = {"refuse_collect": "CollectError"}
BUILDERS_BY_FILE = {
    "attestation/types/evidence.py": "MalformedEvidence",
    "attestation/appraise": "PolicyRefused",
}


_COMPOSING = "attestation/parse/fields.py"  # its refusals get a document kind's prefix


def _class_of(node: ast.Call, path: str) -> str:
    """The refusal class a call raises or hands on; empty where the text does not say."""
    name = _called(node)
    if name in STAGES:
        return name
    for value in [*node.args, *(k.value for k in node.keywords)]:
        if isinstance(value, ast.Name) and value.id in STAGES:
            return value.id
    by_file = [cls for place, cls in BUILDERS_BY_FILE.items() if path.startswith(place)]
    return BUILDERS.get(name) or (by_file[0] if by_file else "")


def _codes_of(node: ast.Call, kinds: list[tuple[str, str]], path: str) -> Iterator[tuple[str, str]]:
    """(refusal class, code): a literal given to a refusal or a `refuse` function.

    `kinds`: (prefix, class) of the documents in this room; their `refuse` puts the prefix before.
    """
    name = _called(node)
    places: list[ast.AST] = [k.value for k in node.keywords if k.arg == "code"]
    if name in STAGES or "refus" in name.lower():
        places += node.args[:1]
    composed = path == _COMPOSING or (
        name == "refuse" and isinstance(node.func, ast.Attribute) and kinds
    )
    for place in places:
        for text in _strings(place):
            if composed and re.fullmatch(r"[a-z_]+", text):
                for prefix, cls in kinds:
                    yield cls, f"{prefix}_{text}"
            elif CODE.match(text):
                yield _class_of(node, path), text


def _document_kinds(trees: list[ast.Module]) -> list[tuple[str, str]]:
    found = []
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _called(node) == "DocumentKind":
                cls, prefix = node.args[:2]
                found.append((prefix.value, cls.id))  # type: ignore[attr-defined]
    return found


def literal_codes(*packages: str) -> dict[str, set[str]]:
    """Code to the places (`file:class`) that raise it."""
    found: dict[str, set[str]] = {}
    for package in packages:
        paths = [
            path
            for path in sorted((ROOT / package).rglob("*.py"))
            if not {"generated", "demo_assets"} & set(path.parts)
        ]
        trees = [ast.parse(path.read_text()) for path in paths]
        kinds = _document_kinds(trees)
        for path, tree in zip(paths, trees, strict=True):
            place = str(path.relative_to(ROOT))
            for node in ast.walk(tree):
                if isinstance(node, ast.Call):
                    for cls, code in _codes_of(node, kinds, place):
                        found.setdefault(code, set()).add(f"{place}:{cls}")
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
