"""Paths inside an artifact: one spelling, nothing that could leave it or be two files at once."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from enclave.core.errors import SealedRefused

MAX_PATH_BYTES = 255
MAX_DEPTH = 16
_INPUT_COMPONENT = re.compile(r"[A-Za-z0-9_@+=,-][A-Za-z0-9_.@+=, -]{0,127}\Z")


def parse_path(path: str, place: str) -> str:
    """A relative path of NFC, printable components joined by `/`.

    `place` names the path in the refusal, for the path itself may be secret.
    Raises SealedRefused `manifest_path_unsafe`.
    """
    fault = _find_fault(path)
    if fault:
        raise SealedRefused(
            "manifest_path_unsafe",
            expected="a relative path of plain names in Unicode form NFC",
            got=f"{place}: {fault}",
        )
    return path


def parse_input_path(path: str, place: str) -> tuple[str, ...]:
    """The components of a path that a sandbox takes: ASCII, none beginning with a dot.

    The rule for suites and bundles, held where they are sealed and where they are copied in.
    Raises SealedRefused `manifest_path_unsafe`.
    """
    names = tuple(path.split("/"))
    if len(names) > MAX_DEPTH or not all(_INPUT_COMPONENT.match(name) for name in names):
        raise SealedRefused(
            "manifest_path_unsafe",
            expected="in suites and bundles: ASCII letters, digits and _.@+=, - without a "
            "leading dot",
            got=f"{place}: a name that no sandbox takes",
        )
    return names


def _find_fault(path: str) -> str:
    if not path:
        return "empty"
    try:
        size = len(path.encode("utf-8", "strict"))
    except UnicodeEncodeError:
        return "not UTF-8"
    if size > MAX_PATH_BYTES:
        return f"longer than {MAX_PATH_BYTES} bytes"
    if not path.isprintable():
        return "a control or invisible character"
    if "\\" in path:
        return "a backslash"
    if path.startswith("/"):
        return "absolute"
    names = path.split("/")
    if len(names) > MAX_DEPTH:
        return f"deeper than {MAX_DEPTH}"
    if any(name in {"", ".", ".."} for name in names):
        return "an empty, `.` or `..` component"
    if not unicodedata.is_normalized("NFC", path):
        return "not in form NFC"
    return ""


def refuse_colliding_paths(paths: Iterable[str]) -> None:
    """Refuse two paths that some file system takes for one, or a file that is also a folder.

    Case and compatibility forms do not distinguish.
    Raises SealedRefused `manifest_duplicate_path`.
    """
    folded = [_fold(path) for path in paths]
    files = set(folded)
    parents = {
        "/".join(names[:depth])
        for names in (path.split("/") for path in folded)
        for depth in range(1, len(names))
    }
    if len(files) != len(folded) or files & parents:
        raise SealedRefused(
            "manifest_duplicate_path",
            expected="paths that differ by more than case or Unicode form",
            got=f"{len(folded) - len(files) + len(files & parents)} collisions",
        )


def _fold(path: str) -> str:
    # Twice, since folding case can leave the normal form.
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())
