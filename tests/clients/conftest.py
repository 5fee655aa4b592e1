"""What the client tests share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
REPOSITORY = Path(__file__).resolve().parents[2]


def command_line(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "enclave.cli.main", *map(str, arguments)]


def clean_environment(**environment: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("DOUBLEBLIND_")}
    return {**kept, **environment}


def doubleblind(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the real command as its own process."""
    return subprocess.run(
        command_line(*arguments),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=REPOSITORY,
        env=clean_environment(**environment),
        stdin=subprocess.DEVNULL,
    )


def last_json(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout.rstrip("\n").splitlines()[-1])
