"""A causal language model and its tokenizer, built from judged files in memory.

Nothing is read by path and nothing is written: the configuration object comes
from judged JSON, the tensors are views of the mapped artifact, and the class
is one of a closed list inside transformers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from enclave.core.errors import ModelRefused
from enclave.core.plan_terms import Engine
from enclave.workload.model_host.model_files import (
    CONFIG,
    GENERATION_CONFIG,
    TOKENIZER,
    ModelFiles,
)
from enclave.workload.model_host.template import ChatTemplate
from enclave.workload.model_host.weights import map_weights

ARCHITECTURES: Mapping[str, str] = {
    "gemma": "GemmaForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gpt_neox": "GPTNeoXForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}
"""The closed list: `model_type` and the class it loads as."""

_FORBIDDEN_CONFIG = frozenset(
    {
        "adapters",
        "compression_config",
        "distributed_config",
        "fusion_config",
        "kernel_config",
        "quantization_config",
        "transformers_weights",
        "use_kernels",
    }
)
"""Configuration that would make transformers fetch, patch or convert something."""
_MAX_DIMENSION = 2**24
_TYPE_NAME = re.compile(r"[a-z0-9_]{1,64}\Z")


@dataclass(frozen=True)
class LoadedModel:
    """A model ready for inference, its tokenizer and its chat template."""

    network: Any
    tokenizer: Tokenizer
    template: ChatTemplate
    end_tokens: frozenset[int]
    positions: int


def load_model(files: ModelFiles, engine: Engine) -> LoadedModel:
    """Build the model that the plan describes out of judged files.

    Raises ModelRefused: `template_…`, `model_architecture_unknown`,
    `model_config_forbidden`, `model_config_malformed`, `safetensors_…`,
    `model_weights_mismatch`, `tokenizer_malformed`, `model_context`.
    """
    template = ChatTemplate(files, engine.template_sha256)
    fields = files.json_object(CONFIG)
    model_type = _accept_architecture(fields)
    tokenizer = _load_tokenizer(files.texts[TOKENIZER])
    tensors = map_weights(files)
    _refuse_config(fields, len(tensors))
    network = _build(model_type, fields, tensors, getattr(torch, engine.dtype))
    vocabulary = network.get_input_embeddings().weight.shape[0]
    if tokenizer.get_vocab_size(with_added_tokens=True) > vocabulary:
        raise ModelRefused("tokenizer_malformed", expected="no more tokens than embeddings")
    positions = int(getattr(network.config, "max_position_embeddings", 0))
    if positions < engine.max_context:
        raise ModelRefused("model_context", expected="max_context within the model's positions")
    return LoadedModel(network, tokenizer, template, _end_tokens(files, fields), positions)


def _accept_architecture(fields: Mapping[str, Any]) -> str:
    model_type = fields.get("model_type")
    if not isinstance(model_type, str) or _TYPE_NAME.match(model_type) is None:
        raise ModelRefused("model_architecture_unknown", expected=", ".join(ARCHITECTURES))
    if model_type not in ARCHITECTURES or fields.get("architectures") != [
        ARCHITECTURES[model_type]
    ]:
        raise ModelRefused("model_architecture_unknown", expected=", ".join(ARCHITECTURES))
    return model_type


def _refuse_config(fields: Mapping[str, Any], tensor_count: int) -> None:
    if fields.keys() & _FORBIDDEN_CONFIG:
        raise ModelRefused("model_config_forbidden", expected="no quantisation, kernels, adapters")
    # Refusals reach both parties: neither a name nor a number of the file is in them.
    for value in fields.values():
        if isinstance(value, int) and not -1 <= value <= _MAX_DIMENSION:
            raise ModelRefused("model_config_malformed", expected="bounded integers")
    # Modules are made before tensors are matched: their number must come from real data.
    for name in ("num_hidden_layers", "n_layer"):
        layers = fields.get(name, 1)
        if not isinstance(layers, int) or not 1 <= layers <= tensor_count:
            raise ModelRefused("model_config_malformed", expected=f"{name}: as many as the data")


def _build(
    model_type: str, fields: Mapping[str, Any], tensors: dict[str, torch.Tensor], dtype: torch.dtype
) -> Any:
    config_class: Any = CONFIG_MAPPING[model_type]
    try:
        # Underscore fields steer transformers itself (attention from a hub, paths): dropped.
        config = config_class.from_dict({k: v for k, v in fields.items() if k[:1] != "_"})
        network_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[config_class]
        network, report = network_class.from_pretrained(
            None,
            config=config,
            state_dict=tensors,
            dtype=dtype,
            attn_implementation="sdpa",
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except ModelRefused:
        raise
    except Exception:  # noqa: BLE001 - a hostile configuration may raise anything; its text is secret
        raise ModelRefused("model_config_malformed", expected="a model of its type") from None
    if any(report[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        raise ModelRefused("model_weights_mismatch", expected="the tensors of the architecture")
    network.eval()
    return network


def _load_tokenizer(data: bytes) -> Tokenizer:
    try:
        return Tokenizer.from_buffer(data)
    except Exception:  # noqa: BLE001 - the binding raises bare exceptions
        raise ModelRefused("tokenizer_malformed", expected="a tokenizers JSON file") from None


def _end_tokens(files: ModelFiles, config: Mapping[str, Any]) -> frozenset[int]:
    value = files.json_object(GENERATION_CONFIG).get("eos_token_id", config.get("eos_token_id"))
    tokens = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(token, int) and not isinstance(token, bool) for token in tokens):
        raise ModelRefused("model_config_malformed", expected="eos_token_id: integers")
    return frozenset(tokens)
