"""Host and runner where they live: confined, apart, with one listener between them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import enclave.cli.demo_assets as assets
from enclave.cli.demo_assets.plain_loop import PlainLoop
from enclave.cli.demo_assets.suites import write_suites
from tests.isolation.harness import AS_ROOT, launch
from tests.model.test_plain_equality import assert_equal
from tests.model.test_runner import MANIFEST, body

BROKER = str(Path(__file__).parent / "brokers" / "evaluate.py")
BUNDLE = Path(assets.__file__).parent / "bundle"
WHO = [pytest.param(True, id="user")]
if AS_ROOT:
    WHO.append(pytest.param(False, id="root", marks=pytest.mark.root))


def evaluate(world: Path, model: Path, bundle: Path, suite: Path, *, user: bool) -> Any:
    """Run the broker over copies in `world`, a directory that any user may be given."""
    for name, source in (("model", model), ("bundle", bundle), ("suite", suite)):
        shutil.copytree(source, world / name, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (world / name).iterdir():
            path.chmod(0o644)
    places = [str(world / name) for name in ("model", "bundle", "suite")]
    options = () if user else ("--readable", str(world))
    ended = launch(world, BROKER, *places, "1", user=user, options=options, timeout=250)
    assert ended.status == 0, ended.stderr
    return ended.last


@pytest.mark.parametrize("user", WHO)
def test_the_demonstration_bundle(user: bool, tiny_model: Path, tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    write_suites(suite, seed=5, items=8)
    world = tmp_path / "world"
    world.mkdir()
    told = evaluate(world, tiny_model, BUNDLE, suite, user=user)
    assert told["loaded"]["op"] == "loaded"
    assert told["after_frame"] == ""
    assert told["sandbox"] == told["host"] == ["exited", 0, []]
    assert told["stopped"]["requests"] == 16
    assert_equal(told["frame"], PlainLoop(tiny_model, threads=1), suite)


def test_a_bundle_that_is_confined(tiny_model: Path, tmp_path: Path) -> None:
    for name in ("world", "suite", "bundle"):
        (tmp_path / name).mkdir()
    (tmp_path / "suite" / "items.jsonl").write_text("{}\n")
    (tmp_path / "bundle" / "bundle.toml").write_text(MANIFEST)
    code = body("""
import os, pathlib
denied = 0
for path in ("/proc/self/environ", "/proc/1/mem", "/etc/shadow", "/root"):
    try:
        os.listdir(path) if path == "/root" else open(path, "rb").read()
    except OSError:
        denied += 1
for path in ("/bundle/x", "/suite/x", "/x"):
    try:
        open(path, "w")
    except OSError:
        denied += 1
pathlib.Path("/tmp/scratch").write_text("may")
RESULT["completed"] = denied
""")
    (tmp_path / "bundle" / "score.py").write_text(code)
    told = evaluate(
        tmp_path / "world", tiny_model, tmp_path / "bundle", tmp_path / "suite", user=not AS_ROOT
    )
    assert told["frame"]["completed"] == 7
