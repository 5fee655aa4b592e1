"""docs/threat-model.md: every file and every test that its tables name is there."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache

import pytest

from tests.architecture.pages import ROOT

HEADER = ["Threat", "Mitigation", "Enforced in", "Tested in"]
PAGE = ROOT / "docs" / "threat-model.md"
_PLACE = re.compile(r"`([\w./-]+\.(?:py|txt|toml))(?:::([\w-]+))?`")


@dataclass(frozen=True)
class Row:
    threat: str
    mitigation: str
    enforced: str
    tested: str


def read_rows() -> list[Row]:
    rows, inside = [], False
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif cells == HEADER:
            inside = True
        elif inside and set(line) - set("|- :"):
            assert len(cells) == len(HEADER), line
            rows.append(Row(*cells))
    return rows


ROWS = read_rows()


@cache
def functions(name: str) -> frozenset[str]:
    tree = ast.parse((ROOT / name).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_the_table_is_long_enough() -> None:
    assert len(ROWS) >= 45
    assert len({row.threat for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.threat[:60])
def test_row(row: Row) -> None:
    assert len(row.threat) > 10
    assert len(row.mitigation) > 10
    enforced = _PLACE.findall(row.enforced)
    assert enforced, "no file enforces it"
    for name, _ in enforced:
        assert (ROOT / name).is_file(), name
        assert not name.startswith("tests/"), "a test enforces nothing"
    tested = _PLACE.findall(row.tested)
    assert tested, "no test covers it"
    for name, case in tested:
        assert name.startswith("tests/"), name
        assert (ROOT / name).is_file(), name
        assert case, f"{name}: which test?"
        if re.fullmatch(r"tests/attacks/\w+_attacks.py", name):
            assert f'"{case}"' in (ROOT / name).read_text(), f"no attack {case} in {name}"
        else:
            assert case in functions(name), f"no {case} in {name}"


def test_every_place_is_spelled_as_one() -> None:
    """What looks like a file in the two last columns is checked above, none is overlooked."""
    for row in ROWS:
        for cell in (row.enforced, row.tested):
            rest = _PLACE.sub("", cell)
            assert re.fullmatch(r"[, ]*", rest), rest


def test_every_table_of_attacks_is_named() -> None:
    named = {name for row in ROWS for name, _ in _PLACE.findall(row.tested)}
    tables = {
        str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "attacks").glob("*_attacks.py")
    }
    assert tables <= named
