"""Where the trusted Python runtime lies, so that a compartment can see it and nothing else."""

# Descriptors, mounts and exact paths: the os functions say what happens.
# ruff: noqa: PTH100, PTH109, PTH110, PTH112, PTH114, PTH115, PTH120
from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import attestation
import enclave
from enclave.core.errors import IsolationRefused

COMPARTMENT_ID: Final = 1000
"""The user and group number that a compartment sees as its own."""

_ETC_FILES: Final = {
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "passwd": f"compartment:x:{COMPARTMENT_ID}:{COMPARTMENT_ID}::/tmp:/nonexistent\n",
    "group": f"compartment:x:{COMPARTMENT_ID}:\n",
}
_SYSTEM_TREES: Final = ("/lib", "/lib64", "/lib32", "/libx32")
_BWRAP_PLACES: Final = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap")


@dataclass(frozen=True, slots=True)
class Runtime:
    """The trees of the runtime, all absolute: bound read-only at the same paths inside."""

    python: str
    import_path: tuple[str, ...]
    trees: tuple[str, ...]
    links: tuple[tuple[str, str], ...]


def discover_runtime() -> Runtime:
    """The runtime of this very process: interpreter, environment and this package's source."""
    packages = [_package_directory(module.__file__) for module in (enclave, attestation)]
    trees = _outermost(
        ["/usr", os.path.realpath(sys.base_prefix), os.path.abspath(sys.prefix), *packages]
    )
    links = []
    for path in _SYSTEM_TREES:
        if os.path.islink(path):
            links.append((path, os.readlink(path)))
        elif os.path.isdir(path):
            trees.append(path)
    sources = [os.path.dirname(package) for package in packages]
    # The directory that python -m was started in is on the path by accident.
    started_in = os.getcwd()
    installed = [
        entry
        for entry in map(os.path.abspath, filter(None, sys.path))
        if entry != started_in and os.path.exists(entry) and _beneath(entry, trees)
    ]
    return Runtime(
        python=os.path.realpath(sys.executable),
        # the standard library first, or a package of the same name would stand in for it
        import_path=tuple(dict.fromkeys([*installed, *sources])),
        trees=tuple(trees),
        links=tuple(links),
    )


def find_bubblewrap() -> str:
    """The path of bwrap; refused when there is none (`bwrap_missing`)."""
    for path in (*_BWRAP_PLACES, os.path.join(sys.prefix, "bin", "bwrap")):
        if os.access(path, os.X_OK):
            return path
    raise IsolationRefused(
        "bwrap_missing", expected="bubblewrap", got="no bwrap", hint="apt-get install bubblewrap"
    )


def write_etc(directory: str) -> None:
    """Fill a directory with the few files of /etc that the C library reads."""
    os.makedirs(directory, mode=0o755, exist_ok=True)
    for name, content in _ETC_FILES.items():
        Path(directory, name).write_text(content, "ascii")
    if os.path.exists("/etc/ld.so.cache"):
        shutil.copyfile("/etc/ld.so.cache", os.path.join(directory, "ld.so.cache"))


def _package_directory(file: str | None) -> str:
    if file is None:
        raise IsolationRefused("runtime_unknown", expected="packages installed as directories")
    return os.path.dirname(os.path.realpath(file))


def _outermost(paths: Sequence[str]) -> list[str]:
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not _beneath(path, kept):
            kept.append(path)
    return kept


def _beneath(path: str, trees: Sequence[str]) -> bool:
    return any(path == tree or path.startswith(tree.rstrip("/") + "/") for tree in trees)
