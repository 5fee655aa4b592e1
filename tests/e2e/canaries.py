"""Random strings planted in secrets, and the search for them in every usual spelling."""

from __future__ import annotations

import base64
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path


def make_canary(name: str) -> str:
    """A string that occurs nowhere by chance."""
    return f"canary{name}{secrets.token_hex(12)}"


def spellings(canary: str) -> dict[str, bytes]:
    """Plain, hex, UTF-16 and the three alignments of base64."""
    data = canary.encode()
    found = {
        "plain": data,
        "upper": data.upper(),
        "reversed": data[::-1],
        "hex": data.hex().encode(),
        "utf16": canary.encode("utf-16-le"),
    }
    for shift in range(3):
        text = base64.b64encode(b"x" * shift + data)
        # The first and last quartet depend on the neighbours.
        found[f"base64+{shift}"] = text[4 : len(text) // 4 * 4 - 4]
    return found


def find_canaries(data: bytes, canaries: Iterable[str]) -> list[str]:
    return [
        f"{canary[:12]} as {spelling}"
        for canary in canaries
        for spelling, needle in spellings(canary).items()
        if needle in data
    ]


def files_below(root: Path, *, skip: Iterable[Path] = ()) -> Iterator[Path]:
    skipped = [str(path) for path in skip]
    device = root.stat().st_dev
    for folder, folders, names in os.walk(root, followlinks=False):
        folders[:] = [
            name
            for name in folders
            if os.path.join(folder, name) not in skipped
            # Never into another file system: reading one like /proc may block.
            and os.lstat(os.path.join(folder, name)).st_dev == device
        ]
        for name in names:
            yield Path(folder) / name


def search_tree(root: Path, canaries: Iterable[str], *, skip: Iterable[Path] = ()) -> list[str]:
    """Every regular file below `root`, names included."""
    wanted = list(canaries)
    found = []
    for path in files_below(root, skip=skip):
        found += [f"name of {path}: {hit}" for hit in find_canaries(str(path).encode(), wanted)]
        try:
            if not path.is_symlink() and path.is_file():
                hits = find_canaries(path.read_bytes(), wanted)
                found += [f"{path}: {hit}" for hit in hits]
        except OSError:
            continue
    return found


def search_processes(pids: Iterable[int], canaries: Iterable[str]) -> list[str]:
    """Command line and environment of processes."""
    wanted = list(canaries)
    found = []
    for pid in pids:
        for name in ("cmdline", "environ", "comm"):
            try:
                data = Path(f"/proc/{pid}/{name}").read_bytes()
            except OSError:
                continue
            found += [f"{name} of {pid}: {hit}" for hit in find_canaries(data, wanted)]
    return found


def search_inside(pids: Iterable[int], canaries: Iterable[str]) -> list[str]:
    """The file systems in memory as the workload's own processes see them, and their memfds."""
    wanted = list(canaries)
    found = []
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/mounts").read_text().splitlines()
            links = list(Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue
        for line in lines:
            _, point, kind, *_ = line.split()
            if kind in {"tmpfs", "ramfs"}:
                try:
                    found += search_tree(Path(f"/proc/{pid}/root{point}"), wanted)
                except OSError:
                    continue  # ended in between
        for link in links:
            try:
                if "memfd" in str(link.readlink()):
                    found += find_canaries(link.read_bytes(), wanted)
            except OSError:
                continue
    return found


def search_temporary(since: float, canaries: Iterable[str], *, skip: Path) -> list[str]:
    """Regular files of the usual temporary places that were written after `since`."""
    wanted = list(canaries)
    found = []
    for folder in (Path("/tmp"), Path("/dev/shm"), Path("/run"), Path("/var/tmp")):
        for path in files_below(folder):
            try:
                state = path.lstat()
                recent = state.st_mtime >= since and skip not in path.parents
                if recent and stat.S_ISREG(state.st_mode) and state.st_size <= 2**26:
                    found += [f"{path}: {hit}" for hit in find_canaries(path.read_bytes(), wanted)]
            except OSError:
                continue
    return found
