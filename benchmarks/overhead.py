"""Run time inside the enclave's compartments against a plain transformers loop.

Both score the same prompts of the demonstration on the same model, start-up
apart, in alternation on the same machine.  The enclave side is the real one:
model host and sandbox are started by the launcher, each confined, with the
weights in protected memory; this program is their broker.  What is timed is
the span from the bundle's first progress to its result.

`enclave_vs_plain` is the median of the rounds' ratios.  With --json the last
line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _table import median_ratio, print_json, print_table

import enclave.cli.demo_assets as assets
from enclave.cli.demo_assets.model import default_cache, prepare_model
from enclave.cli.demo_assets.suites import write_suites

_HERE = Path(__file__).resolve()
_BUNDLE = Path(assets.__file__).parent / "bundle"


def measure(model: Path, items: int, rounds: int, threads: int) -> dict[str, Any]:
    """Run the broker of overhead_broker.py under a launcher and return its figures."""
    with tempfile.TemporaryDirectory() as name:
        world = Path(name)
        world.chmod(0o755)
        (world / "run").mkdir()
        write_suites(world / "suite", seed=1, items=items)
        # The broker has a user of its own under root: it reads copies.
        for source, target in ((model, world / "model"), (_BUNDLE, world / "bundle")):
            target.mkdir()
            for path in (path for path in source.iterdir() if path.is_file()):
                shutil.copyfile(path, target / path.name)
        command = [
            *(sys.executable, "-m", "enclave.workload.launcher"),
            *("--run-directory", str(world / "run"), "--state-directory", str(world / "state")),
            *("--readable", str(world), "--readable", str(_HERE.parent), "--"),
            *(sys.executable, str(_HERE.with_name("overhead_broker.py"))),
            *(str(world), str(rounds), str(threads)),
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"the broker ended with {done.returncode}")
        figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", type=int, default=10, help="items of each suite a round")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--cache", type=Path, default=default_cache())
    arguments = parser.parse_args()
    model = prepare_model(arguments.cache, report=lambda stage: print(f"model: {stage}"))
    figures = measure(model, arguments.items, arguments.rounds, arguments.threads)
    enclave, plain = figures["enclave_seconds"], figures["plain_seconds"]
    print_table(
        f"{figures['items']} items, {len(plain)} rounds, {arguments.threads} threads,"
        f" weights in {figures['memory']}",
        ["", "median s", "best s"],
        [
            ["enclave", statistics.median(enclave), min(enclave)],
            ["plain loop", statistics.median(plain), min(plain)],
        ],
    )
    ratio = median_ratio(enclave, plain)
    print(f"enclave_vs_plain {ratio:.3f}; the same numbers: {figures['same_numbers']}")
    if arguments.json:
        print_json(
            {
                "enclave_vs_plain": ratio,
                "enclave_seconds": statistics.median(enclave),
                "plain_seconds": statistics.median(plain),
                "items": figures["items"],
                "threads": arguments.threads,
                "memory": figures["memory"],
                "same_numbers": figures["same_numbers"],
            }
        )


if __name__ == "__main__":
    main()
