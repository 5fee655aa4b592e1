"""Attacks on a model directory: names, descriptors, configuration, remote code."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from enclave.core.errors import ModelRefused
from enclave.core.fields import Fields
from enclave.core.plan_terms import read_engine
from enclave.workload.model_host.loading import LoadedModel, load_model
from enclave.workload.model_host.model_files import ModelFiles, accept_model_files
from enclave.workload.model_host.template import template_sha256
from enclave.workload.model_host.weights import map_weights
from tests.model.host_process import engine_settings
from tests.model.tiny import write_tiny_model

Descriptors = list[int]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "model")


@pytest.fixture
def descriptors() -> Iterator[Descriptors]:
    opened: Descriptors = []
    yield opened
    for descriptor in opened:
        os.close(descriptor)


def accept(model: Path, opened: Descriptors, flags: int = os.O_RDONLY) -> ModelFiles:
    names = sorted(p.name for p in model.iterdir())
    opened.extend(os.open(model / name, flags) for name in names)
    listed = [
        {"path": name, "size": os.fstat(descriptor).st_size}
        for name, descriptor in zip(names, opened, strict=True)
    ]
    return accept_model_files(listed, opened)


def load(model: Path, opened: Descriptors, **changes: Any) -> LoadedModel:
    engine = read_engine(Fields(engine_settings(model, **changes), "engine"))
    return load_model(accept(model, opened), engine)


def edit(name: str, **changes: Any) -> Callable[[Path], None]:
    def apply(model: Path) -> None:
        path = model / name
        fields = json.loads(path.read_text()) if path.exists() else {}
        fields.update(changes)
        path.write_text(json.dumps({k: v for k, v in fields.items() if v is not ...}))

    return apply


def write(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda model: (model / name).write_bytes(data) and None


def remove(name: str) -> Callable[[Path], None]:
    return lambda model: (model / name).unlink()


def pickled_as_safetensors(model: Path) -> None:
    (model / "model.safetensors").write_bytes(pickle.dumps({"w": list(range(100))}))


def zip_pickle_as_safetensors(model: Path) -> None:
    torch.save({"w": torch.zeros(4)}, model / "model.safetensors")


def shard(model: Path) -> None:
    (model / "model.safetensors").rename(model / "model-00001-of-00002.safetensors")


def same_tensors_twice(model: Path) -> None:
    data = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").unlink()
    for number in (1, 2):
        (model / f"model-0000{number}-of-00002.safetensors").write_bytes(data)


ATTACKS: dict[str, tuple[Callable[[Path], None], str]] = {
    "pickle weights": (write("pytorch_model.bin", b"\x80\x04."), "model_pickle"),
    "pickle by another name": (write("weights.PT", b"\x80\x04."), "model_pickle"),
    "pickle called safetensors": (pickled_as_safetensors, "model_pickle"),
    "torch.save called safetensors": (zip_pickle_as_safetensors, "model_pickle"),
    "numpy archive": (write("extra.npz", b"PK"), "model_pickle"),
    "code file": (write("modeling_custom.py", b"import os"), "model_remote_code"),
    "shared object": (write("kernel.so", b"\x7fELF"), "model_remote_code"),
    "auto_map in the configuration": (
        edit("config.json", auto_map={"AutoModel": "x.Y"}),
        "model_remote_code",
    ),
    "auto_map deep inside": (
        edit("config.json", text_config={"inner": [{"auto_map": {}}]}),
        "model_remote_code",
    ),
    "auto_map in the tokenizer": (
        edit("tokenizer_config.json", auto_map={"AutoTokenizer": ["x.Y", None]}),
        "model_remote_code",
    ),
    "custom pipelines": (edit("config.json", custom_pipelines={}), "model_remote_code"),
    "pickle in disguise": (write("weights.pkl.txt", b"\x80\x04."), "model_pickle"),
    "unknown file": (write("weights.gguf", b"GGUF"), "model_file_kind"),
    "weights of another name": (write("other.safetensors", b"x"), "model_file_unknown"),
    "hidden file": (write(".cache.json", b""), "model_file_unknown"),
    "no configuration": (remove("config.json"), "model_file_missing"),
    "no tokenizer": (remove("tokenizer.json"), "model_file_missing"),
    "no weights": (remove("model.safetensors"), "model_file_missing"),
    "missing shard": (shard, "model_shards"),
    "tensor in two shards": (same_tensors_twice, "safetensors_duplicate"),
    "configuration not JSON": (write("config.json", b"{"), "model_file_malformed"),
    "configuration an array": (write("config.json", b"[]"), "model_file_malformed"),
    "key twice": (write("config.json", b'{"a":1,"a":2}'), "model_file_malformed"),
    "configuration too large": (
        write("config.json", b" " * ((1 << 20) + 1)),
        "model_file_size",
    ),
    "another architecture": (edit("config.json", model_type="x"), "model_architecture_unknown"),
    "architecture as a path": (
        edit("config.json", model_type="../llama"),
        "model_architecture_unknown",
    ),
    "class of another head": (
        edit("config.json", architectures=["LlamaForSequenceClassification"]),
        "model_architecture_unknown",
    ),
    "quantisation": (
        edit("config.json", quantization_config={"quant_method": "gptq"}),
        "model_config_forbidden",
    ),
    "hub kernels": (edit("config.json", use_kernels=True), "model_config_forbidden"),
    "a billion layers": (
        edit("config.json", num_hidden_layers=10**9),
        "model_config_malformed",
    ),
    "more layers than data": (
        edit("config.json", num_hidden_layers=10**4),
        "model_config_malformed",
    ),
    "one layer more": (edit("config.json", num_hidden_layers=3), "model_weights_mismatch"),
    "one layer less": (edit("config.json", num_hidden_layers=1), "model_weights_mismatch"),
    "negative size": (edit("config.json", hidden_size=-64), "model_config_malformed"),
    "text as a size": (edit("config.json", hidden_size="64"), "model_config_malformed"),
    "tokenizer not a tokenizer": (write("tokenizer.json", b"{}"), "tokenizer_malformed"),
    "template changed": (write("chat_template.jinja", b"{{ 1 }}"), "template_mismatch"),
    "template removed": (remove("chat_template.jinja"), "template_mismatch"),
    "a second template": (
        edit("tokenizer_config.json", chat_template="{{ 2 }}"),
        "template_ambiguous",
    ),
    "named templates": (
        edit("tokenizer_config.json", chat_template=[{"name": "a", "template": ""}]),
        "template_ambiguous",
    ),
    "end token not a number": (
        edit("generation_config.json", eos_token_id="1"),
        "model_config_malformed",
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_has_its_code(name: str, model: Path, descriptors: Descriptors) -> None:
    attack, code = ATTACKS[name]
    engine = read_engine(Fields(engine_settings(model), "engine"))
    attack(model)
    with pytest.raises(ModelRefused) as refused:
        load_model(accept(model, descriptors), engine)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "attack",
    [
        edit("config.json", canary_4711=2**40),
        edit("config.json", max_position_embeddings=4711),
        edit("config.json", model_type="canary_4711"),
        edit("config.json", hidden_size=4711),
        edit("generation_config.json", eos_token_id="canary_4711"),
        write("chat_template.jinja", b"canary_4711"),
    ],
)
def test_a_refusal_says_nothing_of_the_model(
    attack: Callable[[Path], None], model: Path, descriptors: Descriptors
) -> None:
    """The evaluator reads it too: neither text nor numbers, nor a digest to confirm guesses by."""
    settings = engine_settings(model)
    settings["max_context"] = 5000
    attack(model)
    with pytest.raises(ModelRefused) as refused:
        load_model(accept(model, descriptors), read_engine(Fields(settings, "engine")))
    assert "4711" not in str(refused.value)
    assert template_sha256("canary_4711") not in str(refused.value)


def test_the_model_itself_loads(model: Path, descriptors: Descriptors) -> None:
    loaded = load(model, descriptors)
    assert loaded.end_tokens == {1}
    assert not loaded.network.training


def test_what_may_lie_beside_a_model_is_never_read(model: Path, descriptors: Descriptors) -> None:
    for name in ("README.md", "LICENSE", "vocab.json", "merges.txt", "tokenizer.model"):
        (model / name).write_bytes(b"\x80 no text")
    files = accept(model, descriptors)
    assert sorted(files.texts) == [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_weights_are_not_copied(model: Path, descriptors: Descriptors) -> None:
    files = accept(model, descriptors)
    tensors = map_weights(files)
    engine = read_engine(Fields(engine_settings(model), "engine"))
    network = load_model(files, engine).network
    path = model / "model.safetensors"
    inode = str(path.stat().st_ino)
    spans = [
        [int(edge, 16) for edge in line.split()[0].split("-")]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.split()[4] == inode
    ]
    for tensor in (*network.parameters(), *tensors.values()):
        assert any(low <= tensor.data_ptr() < high for low, high in spans)


def test_a_write_to_a_weight_leaves_the_file_alone(model: Path, descriptors: Descriptors) -> None:
    before = (model / "model.safetensors").read_bytes()
    loaded = load(model, descriptors)
    with torch.no_grad():
        loaded.network.get_input_embeddings().weight.zero_()
    assert (model / "model.safetensors").read_bytes() == before


def test_a_longer_context_than_the_model_has(model: Path, descriptors: Descriptors) -> None:
    with pytest.raises(ModelRefused, match="model_context"):
        load(model, descriptors, max_context=513)


def test_writable_descriptor(model: Path, descriptors: Descriptors) -> None:
    with pytest.raises(ModelRefused, match="model_descriptor_writable"):
        accept(model, descriptors, os.O_RDWR)


@pytest.mark.parametrize(
    ("listed", "code"),
    [
        ([{"path": "config.json", "size": 3}], "model_file_size"),
        ([{"path": "config.json", "size": -1}], "model_files_listed"),
        ([{"path": "../config.json", "size": 2}], "model_file_unknown"),
        ([{"path": "a/.config.json", "size": 2}], "model_file_unknown"),
        ([{"path": "a/model.safetensors", "size": 2}], "model_file_unknown"),
        ([{"path": "/model.safetensors", "size": 2}], "model_file_unknown"),
        ([{"path": "a/config.json", "size": 2}], "model_file_missing"),
        ([{"path": "config.json"}], "model_files_listed"),
        ([{"path": "config.json", "size": 2, "x": 1}], "model_files_listed"),
        ([], "model_files_listed"),
        (["config.json"], "model_files_listed"),
    ],
)
def test_list_and_descriptors_must_fit(
    listed: list[Any], code: str, tmp_path: Path, descriptors: Descriptors
) -> None:
    (tmp_path / "x").write_bytes(b"{}")
    descriptors.append(os.open(tmp_path / "x", os.O_RDONLY))
    with pytest.raises(ModelRefused, match=code):
        accept_model_files(listed, descriptors)


def test_a_directory_is_no_file(tmp_path: Path, descriptors: Descriptors) -> None:
    descriptors.append(os.open(tmp_path, os.O_RDONLY))
    with pytest.raises(ModelRefused, match="model_file_kind"):
        accept_model_files([{"path": "config.json", "size": 4096}], descriptors)


def test_the_same_file_twice(tmp_path: Path, descriptors: Descriptors) -> None:
    (tmp_path / "x").write_bytes(b"{}")
    descriptors += [os.open(tmp_path / "x", os.O_RDONLY) for _ in range(2)]
    with pytest.raises(ModelRefused, match="model_files_listed"):
        accept_model_files([{"path": "config.json", "size": 2}] * 2, descriptors)
