"""What the receipt says about the engine: software and settings, nothing of the model."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import safetensors
import tokenizers
import torch
import transformers

from enclave.core.plan_terms import Engine


def describe_engine(engine: Engine) -> dict[str, str]:
    """Name to text, ready for the receipt's `engine` object."""
    return {
        "attention": "sdpa",
        "batch": str(engine.batch),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cpu_model": _cpu_model(),
        "deterministic_algorithms": str(torch.are_deterministic_algorithms_enabled()).lower(),
        "device": "cpu",
        "dtype": engine.dtype,
        "interop_threads": str(torch.get_num_interop_threads()),
        "mkldnn": str(bool(torch._C._has_mkldnn)).lower(),  # noqa: SLF001 - no typed spelling
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "default"),
        "python": platform.python_version(),
        "safetensors": safetensors.__version__,
        "threads": str(torch.get_num_threads()),
        "tokenizers": tokenizers.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:  # hidden in the compartment
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())[:120]
