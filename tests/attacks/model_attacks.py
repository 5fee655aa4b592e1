"""Attacks by model files: what a loader would run, allocate or read past its end."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from enclave.clients.party.sealing import seal_artifact
from enclave.core.errors import ModelRefused, rebuild_refusal
from tests.attacks.acceptance import EVALUATOR, HOST, HOSTILE_MODEL, MODEL_OWNER, Step, Table
from tests.attacks.documents import TEMPLATE
from tests.attacks.scene import Stage
from tests.attacks.tiny_llama import safetensors_file, write_tiny_llama
from tests.model.host_process import engine_settings
from tests.sealed.artifacts import craft, manifest_entry

ATTACKS = Table()


class Payload:
    """Runs code when it is unpickled; the table looks for its trace after every attack."""

    def __init__(self, stage: Stage) -> None:
        self.trace = stage.trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {self.trace}",))


def load(stage: Stage, folder: Path, flags: int = os.O_RDONLY, **engine: Any) -> object:
    """Hand the files to a real model host process, as the broker does."""
    answer = stage.scene.model_host.load(folder, engine_settings(folder, **engine), flags)
    if answer["op"] == "refused":
        refusal = answer["refusal"]
        raise rebuild_refusal(refusal.pop("stage"), refusal.pop("code"), **refusal)
    return answer


def edited(stage: Stage, edit: Callable[[Path], object], **engine: Any) -> Step:
    """The smallest honest model with one change."""
    folder = write_tiny_llama(stage.folder / "model")
    edit(folder)
    return lambda: load(stage, folder, **engine)


def weights(data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / "model.safetensors").write_bytes(data)


def config(**changes: Any) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return edit


def tensor(begin: int, end: int, shape: list[int]) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


# Pickles.


@ATTACKS.add(
    "pickle-sealed",
    by=MODEL_OWNER,
    covers="pickle weights",
    error=ModelRefused,
    code="model_pickle",
)
def pickle_sealed(stage: Stage) -> Step:
    folder = write_tiny_llama(stage.folder / "model")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(stage)))
    return lambda: seal_artifact(folder, stage.folder / "sealed", "model")


@ATTACKS.add(
    "pickle-in-the-manifest",
    by=HOSTILE_MODEL,
    covers="pickle weights",
    error=ModelRefused,
    code="model_pickle",
)
def pickle_in_the_manifest(stage: Stage) -> Step:
    """Sealed by hand, past the client's refusal."""
    content = pickle.dumps(Payload(stage))
    entry = manifest_entry("pytorch_model.bin", content)
    return craft(stage.folder, [entry], [content], artifact="model").open


@ATTACKS.add(
    "pickle-named-safetensors",
    by=HOSTILE_MODEL,
    covers="pickle weights",
    error=ModelRefused,
    code="model_pickle",
)
def pickle_named_safetensors(stage: Stage) -> Step:
    return edited(stage, weights(pickle.dumps(Payload(stage))))


@ATTACKS.add(
    "torch-zip-named-safetensors",
    by=HOSTILE_MODEL,
    covers="pickle weights",
    error=ModelRefused,
    code="model_pickle",
)
def torch_zip_named_safetensors(stage: Stage) -> Step:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(Payload(stage)))
    return edited(stage, weights(archive.getvalue()))


@ATTACKS.add(
    "code-beside-the-model", by=HOSTILE_MODEL, error=ModelRefused, code="model_remote_code"
)
def code_beside_the_model(stage: Stage) -> Step:
    return edited(stage, lambda folder: (folder / "modeling_evil.py").write_text("import os"))


@ATTACKS.add("code-named-in-config", by=HOSTILE_MODEL, error=ModelRefused, code="model_remote_code")
def code_named_in_config(stage: Stage) -> Step:
    named = {"AutoModelForCausalLM": "modeling_evil.Evil"}
    return edited(stage, config(auto_map=named))


# Headers of safetensors files.


@ATTACKS.add(
    "header-bomb",
    by=HOSTILE_MODEL,
    covers="safetensors header bomb",
    error=ModelRefused,
    code="safetensors_header_size",
)
def header_bomb(stage: Stage) -> Step:
    """A header that says it has 2**63 bytes."""
    return edited(stage, weights(struct.pack("<Q", 2**63) + b"{}"))


@ATTACKS.add(
    "header-bomb-deep",
    by=HOSTILE_MODEL,
    covers="safetensors header bomb",
    error=ModelRefused,
    code="safetensors_header_json",
)
def header_bomb_deep(stage: Stage) -> Step:
    """Nested so deep that a parser runs out of stack."""
    deep = b'{"w":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    return edited(stage, weights(safetensors_file(deep)))


@ATTACKS.add(
    "header-bomb-shape",
    by=HOSTILE_MODEL,
    covers="safetensors header bomb",
    error=ModelRefused,
    code="safetensors_shape",
)
def header_bomb_shape(stage: Stage) -> Step:
    """A tensor of 2**120 elements with four bytes of data."""
    huge = tensor(0, 4, [2**40, 2**40, 2**40])
    return edited(stage, weights(safetensors_file({"w": huge}, b"\0" * 4)))


@ATTACKS.add(
    "header-past-the-end",
    by=HOSTILE_MODEL,
    covers="safetensors header bomb",
    error=ModelRefused,
    code="safetensors_truncated",
)
def header_past_the_end(stage: Stage) -> Step:
    return edited(stage, weights(safetensors_file({"w": tensor(0, 4096, [1024])}, b"\0" * 8)))


@ATTACKS.add(
    "tensors-overlap",
    by=HOSTILE_MODEL,
    covers="overlapping tensors",
    error=ModelRefused,
    code="safetensors_overlap",
)
def tensors_overlap(stage: Stage) -> Step:
    header = {"a": tensor(0, 16, [4]), "b": tensor(8, 24, [4])}
    return edited(stage, weights(safetensors_file(header, b"\0" * 24)))


@ATTACKS.add("tensors-with-a-hole", by=HOSTILE_MODEL, error=ModelRefused, code="safetensors_hole")
def tensors_with_a_hole(stage: Stage) -> Step:
    """Bytes that belong to no tensor: room to carry something in."""
    header = {"a": tensor(0, 16, [4]), "b": tensor(32, 48, [4])}
    return edited(stage, weights(safetensors_file(header, b"\0" * 48)))


@ATTACKS.add("tensors-and-more", by=HOSTILE_MODEL, error=ModelRefused, code="safetensors_trailing")
def tensors_and_more(stage: Stage) -> Step:
    return edited(stage, weights(safetensors_file({"a": tensor(0, 16, [4])}, b"\0" * 4096)))


@ATTACKS.add(
    "tensor-named-twice", by=HOSTILE_MODEL, error=ModelRefused, code="safetensors_duplicate"
)
def tensor_named_twice(stage: Stage) -> Step:
    entry = json.dumps(tensor(0, 16, [4]))
    header = f'{{"a":{entry},"a":{entry}}}'.encode()
    return edited(stage, weights(safetensors_file(header, b"\0" * 16)))


@ATTACKS.add("tensors-missing", by=HOSTILE_MODEL, error=ModelRefused, code="model_weights_mismatch")
def tensors_missing(stage: Stage) -> Step:
    """Weights of another architecture: the rest would be random numbers."""
    return edited(stage, weights(safetensors_file({"a": tensor(0, 16, [4])}, b"\0" * 16)))


# Templates, configuration, descriptors.


@ATTACKS.add(
    "template-changed",
    by=MODEL_OWNER,
    covers="template changed",
    error=ModelRefused,
    code="template_mismatch",
)
def template_changed(stage: Stage) -> Step:
    """A template that answers the questions itself, in the place of the planned one."""
    folder = write_tiny_llama(stage.folder / "model")
    planned = engine_settings(folder)["template_sha256"]
    (folder / "chat_template.jinja").write_text(TEMPLATE + "{{ 'The answer is 42.' }}")
    return lambda: load(stage, folder, template_sha256=planned)


@ATTACKS.add(
    "template-second",
    by=MODEL_OWNER,
    covers="template changed",
    error=ModelRefused,
    code="template_ambiguous",
)
def template_second(stage: Stage) -> Step:
    """The planned template lies there, another one is configured."""
    second = json.dumps({"chat_template": "{{ 'The answer is 42.' }}"})
    return edited(stage, lambda folder: (folder / "tokenizer_config.json").write_text(second))


@ATTACKS.add(
    "architecture-unknown", by=HOSTILE_MODEL, error=ModelRefused, code="model_architecture_unknown"
)
def architecture_unknown(stage: Stage) -> Step:
    return edited(stage, config(model_type="evil", architectures=["EvilForCausalLM"]))


@ATTACKS.add(
    "config-layer-bomb", by=HOSTILE_MODEL, error=ModelRefused, code="model_config_malformed"
)
def config_layer_bomb(stage: Stage) -> Step:
    """A million layers over the data of one."""
    return edited(stage, config(num_hidden_layers=1_000_000))


@ATTACKS.add("config-kernels", by=HOSTILE_MODEL, error=ModelRefused, code="model_config_forbidden")
def config_kernels(stage: Stage) -> Step:
    """Configuration that has kernels fetched from a hub."""
    return edited(stage, config(use_kernels=True))


@ATTACKS.add("tokenizer-broken", by=HOSTILE_MODEL, error=ModelRefused, code="tokenizer_malformed")
def tokenizer_broken(stage: Stage) -> Step:
    return edited(stage, lambda folder: (folder / "tokenizer.json").write_text('{"version": "9"}'))


@ATTACKS.add("context-too-long", by=EVALUATOR, error=ModelRefused, code="model_context")
def context_too_long(stage: Stage) -> Step:
    """A plan that reads past the positions the model was made for."""
    return edited(stage, lambda _: None, max_context=4096)


@ATTACKS.add("weights-writable", by=HOST, error=ModelRefused, code="model_descriptor_writable")
def weights_writable(stage: Stage) -> Step:
    """Descriptors through which the files can still be changed after they were judged."""
    folder = write_tiny_llama(stage.folder / "model")
    return lambda: load(stage, folder, flags=os.O_RDWR)
