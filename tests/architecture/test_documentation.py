"""Links, paths and commands in the documentation are real."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import click
import pytest

from enclave.cli.main import cli
from tests.architecture.pages import PAGES, ROOT, anchors, fences, name_of, prose

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?: \"[^\"]*\")?\)|(?:src|srcset|href)=\"([^\"]+)\"")
_TREES = "enclave|attestation|tests|docs|policies|protos|images|benchmarks"
_PATH = re.compile(rf"(?<![\w/.-])((?:{_TREES})/[\w./-]*\w\.(?:py|md|json|toml|txt|proto|svg))\b")
SESSION_CODES = re.compile(r'(?:Refused|_refuse)\(\s*"([a-z_]+)"|^\s+\("(grant_[a-z_]+)"', re.M)


def test_pages_are_found() -> None:
    names = {name_of(page) for page in PAGES}
    assert {"README.md", "SECURITY.md", "CHANGELOG.md", "docs/architecture.md"} <= names
    assert {"docs/threat-model.md", "docs/limitations.md", "docs/getting-started.md"} <= names
    assert len(names) >= 25


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_resolve(page: Path) -> None:
    for one, other in _LINK.findall(prose(page.read_text())):
        target = unquote(one or other)
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert found.is_relative_to(ROOT), target
        if anchor:
            assert anchor in anchors(found.read_text()), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_that_are_named_exist(page: Path) -> None:
    for name in _PATH.findall(page.read_text()):
        assert (ROOT / name).exists(), name


def test_every_page_is_linked_from_somewhere() -> None:
    linked = {
        (page.parent / (one or other).partition("#")[0]).resolve()
        for page in PAGES
        for one, other in _LINK.findall(page.read_text())
    }
    top = {ROOT / "README.md"}
    assert [name_of(page) for page in PAGES if page not in linked | top] == []


def test_every_picture_is_used_and_reads_in_the_dark() -> None:
    text = "".join(page.read_text() for page in PAGES)
    pictures = sorted((ROOT / "docs" / "pictures").glob("*"))
    assert pictures
    for picture in pictures:
        assert picture.name in text, picture.name
        assert "prefers-color-scheme: dark" in picture.read_text()


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every `doubleblind` command line in the fenced shell blocks."""
    for page in PAGES:
        for info, body in fences(page.read_text()):
            if info.split(" ")[0] not in ("", "sh"):
                continue
            for line in body.replace("\\\n", " ").splitlines():
                if "doubleblind" not in line or line.lstrip().startswith("#"):
                    continue
                try:
                    words = shlex.split(line, comments=True)
                except ValueError:
                    continue  # a line of another language
                for start, word in enumerate(words):
                    if word in ("doubleblind", "$(command -v doubleblind)"):
                        yield name_of(page), words[start + 1 :]


COMMANDS = list(commands())


def test_commands_are_found() -> None:
    assert len(COMMANDS) >= 20


@pytest.mark.parametrize(
    "command", COMMANDS, ids=lambda pair: f"{pair[0]}: {' '.join(pair[1][:2])}"
)
def test_options_of_the_commands_exist(command: tuple[str, list[str]]) -> None:
    _, words = command
    found: click.Command = cli
    while isinstance(found, click.Group):
        word = words.pop(0)
        if word in ("-h", "--help", "--version"):
            return
        next_found = found.get_command(click.Context(found), word)
        assert next_found is not None, f"no command {word}"
        found = next_found
    known = {option for parameter in found.params for option in parameter.opts} | {"--help", "-h"}
    stop = next((i for i, word in enumerate(words) if word in ("|", ">", "&&", ";")), len(words))
    for word in words[:stop]:
        if word.startswith("--"):
            assert word.partition("=")[0] in known, word


def test_the_session_page_names_every_code_of_the_session() -> None:
    source = (ROOT / "enclave" / "core" / "session.py").read_text()
    raised = {one or other for one, other in SESSION_CODES.findall(source)}
    assert len(raised) >= 15
    page = (ROOT / "docs" / "spec" / "session.md").read_text()
    assert {code for code in raised if f"`{code}`" not in page} == set()
