"""Real tmpfs mounts for the tests that need one."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sealed.artifacts import FOUR_FILES, Sealed, seal_tree

MountTmpfs = Callable[..., Path]


@pytest.fixture
def mount_tmpfs(tmp_path: Path) -> Iterator[MountTmpfs]:
    """Mounts a tmpfs with the given options; unmounted whatever happens."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    with contextlib.ExitStack() as unmounting:

        def mount(options: str = "huge=always,noswap,size=64m,mode=0700") -> Path:
            point = tmp_path / f"mount-{len(list(tmp_path.iterdir()))}"
            point.mkdir(mode=0o700)
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "tmpfs", point], check=True, timeout=20
            )
            unmounting.callback(subprocess.run, ["umount", "--lazy", point], check=True, timeout=20)
            return point

        yield mount


@pytest.fixture(scope="module")
def sealed_once(tmp_path_factory: pytest.TempPathFactory) -> Sealed:
    return seal_tree(tmp_path_factory.mktemp("once"), FOUR_FILES)
