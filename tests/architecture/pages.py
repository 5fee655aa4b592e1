"""The pages that people read, and what stands in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "images").glob("*.md")]
)
_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def fences(text: str) -> Iterator[tuple[str, str]]:
    """The info string and the body of each fenced block."""
    for match in _FENCE.finditer(text):
        yield match[1].strip(), match[2]


def prose(text: str) -> str:
    """The text without its fenced blocks."""
    return _FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as code forges make them."""
    found: set[str] = set()
    for title in re.findall(r"^#+ (.+)$", prose(text), re.M):
        plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-"))
    return found
