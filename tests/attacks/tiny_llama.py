"""A llama of one layer, written without torch: the smallest model that the model host loads."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tests.attacks.documents import TEMPLATE

_HIDDEN, _INNER, _WORDS = 8, 16, ("<s>", "</s>", "one", "two", "three")
_CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": len(_WORDS),
    "hidden_size": _HIDDEN,
    "intermediate_size": _INNER,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 256,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
}


def write_tiny_llama(folder: Path) -> Path:
    """Config, tokenizer, template and weights (seed 0)."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(_CONFIG))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(_WORDS)}, "<s>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "model.safetensors").write_bytes(save(_weights()))
    return folder


def _weights() -> dict[str, Any]:
    layer = "model.layers.0."
    shapes = {
        "model.embed_tokens.weight": (len(_WORDS), _HIDDEN),
        "model.norm.weight": (_HIDDEN,),
        "lm_head.weight": (len(_WORDS), _HIDDEN),
        f"{layer}input_layernorm.weight": (_HIDDEN,),
        f"{layer}post_attention_layernorm.weight": (_HIDDEN,),
        f"{layer}mlp.gate_proj.weight": (_INNER, _HIDDEN),
        f"{layer}mlp.up_proj.weight": (_INNER, _HIDDEN),
        f"{layer}mlp.down_proj.weight": (_HIDDEN, _INNER),
    }
    shapes |= {f"{layer}self_attn.{name}_proj.weight": (_HIDDEN, _HIDDEN) for name in "qkvo"}
    numbers = np.random.default_rng(0)
    return {name: numbers.random(shape, dtype=np.float32) for name, shape in shapes.items()}


def safetensors_file(header: Any, data: bytes = b"") -> bytes:
    """A file with this header (JSON bytes, or a value to print), whatever it says."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data
