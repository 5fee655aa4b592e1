"""The documents and folders that the parties of the attacks bring."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

POLICIES = Path(__file__).resolve().parents[2] / "policies"
UNSAFE_SIMULATED = POLICIES / "unsafe_simulated.json"
PRODUCTION = POLICIES / "production_snp_h100.json"
DENY_ALL = POLICIES / "deny_all.json"
MEASUREMENT = bytes(range(48))
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
BUNDLE_TOML = """\
kind = "python"
environment = "python-stdlib"
"""

SECRET_TEXTS = ("1 + 1", "third prompt", "first_prompt", "forty_two", "The answer is 42")
"""What attackers of the table try to get out in a refusal."""

_RATIO = {"kind": "ratio", "low": "0", "high": "1", "step": "0.01", "min_n": 10, "max_digits": 6}


def result_policy(**changes: Any) -> bytes:
    """Two ratios with two known answers; fields replaced."""
    document = {
        "type": "https://w3id.org/double-blind/result-policy/v1",
        "max_bits": 512,
        "slot_seconds": 3600,
        "release_bytes": 4096,
        "metrics": [
            {"id": "accuracy", **_RATIO, "views": ["summary"]},
            {"id": "naive", **_RATIO, "views": ["summary"]},
        ],
        "controls": [{"id": "oracle", "expected": "1"}, {"id": "null_answer", "expected": "0"}],
        "baselines": [{"metric": "accuracy", "baseline": "naive"}],
        **changes,
    }
    return json.dumps(document).encode()


_FRAME = {
    "metrics": {"accuracy": {"value": "0.305", "n": 100}, "naive": {"value": "0.25", "n": 100}},
    "controls": {"oracle": "1", "null_answer": "0"},
    "completed": 100,
    "failed": 0,
}


def frame(**changes: Any) -> dict[str, Any]:
    """A result that the policy releases, with top-level fields replaced."""
    return copy.deepcopy({**_FRAME, **changes})


def frame_with(value: Any, n: Any = 100) -> bytes:
    """That result with another value of `accuracy`, as JSON."""
    document = frame()
    document["metrics"]["accuracy"] = {"value": value, "n": n}
    return json.dumps(document).encode()


def authored(path: Path, **changes: Any) -> bytes:
    """A policy file with top-level fields replaced; None removes one."""
    document = {**json.loads(path.read_bytes()), **changes}
    return json.dumps(
        {name: value for name, value in document.items() if value is not None}
    ).encode()


def write_sources(root: Path) -> dict[str, Path]:
    """A model, a suite and a bundle to seal, small but of the real shape."""
    folders = {name: root / name for name in ("model", "suite", "bundle")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    tensors = {"weight": np.arange(64, dtype=np.float32).reshape(8, 8)}
    (folders["model"] / "model.safetensors").write_bytes(save(tensors))
    (folders["model"] / "config.json").write_text('{"model_type": "llama"}')
    (folders["model"] / "chat_template.jinja").write_text(TEMPLATE)
    (folders["suite"] / "prompts.jsonl").write_text('{"prompt": "1 + 1", "answer": "2"}\n')
    (folders["bundle"] / "bundle.toml").write_text(BUNDLE_TOML)
    (folders["bundle"] / "score.py").write_text("def evaluate(model, suite):\n    return {}\n")
    return folders
