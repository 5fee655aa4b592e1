"""Every refusal code that the sources can raise, found by reading them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+\Z")
CLASSES = re.compile(
    r"(\w*Refused|Refusal|MalformedEvidence|SignatureInvalid|EndorsementUnavailable|"
    r"PolicyRefused|CollectError|MalformedPolicy)\Z"
)


def _called(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


def literal_codes(*packages: str) -> dict[str, set[str]]:
    """Code to the files that raise it: literals given to a refusal, or to a `refuse` function."""
    found: dict[str, set[str]] = {}
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "generated" in path.parts or "demo_assets" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call):
                    continue
                name = _called(node)
                candidates = []
                if CLASSES.match(name) or "refus" in name.lower():
                    candidates += node.args[:1]
                candidates += [k.value for k in node.keywords if k.arg == "code"]
                for value in candidates:
                    for each in ast.walk(value):
                        text = each.value if isinstance(each, ast.Constant) else None
                        if isinstance(text, str) and CODE.match(text):
                            found.setdefault(text, set()).add(str(path.relative_to(ROOT)))
    return found


if __name__ == "__main__":
    codes = literal_codes("enclave", "attestation")
    for code in sorted(codes):
        print(code, *sorted(codes[code]))
    print(len(codes))
