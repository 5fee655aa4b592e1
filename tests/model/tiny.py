"""A tiny random model with a real tokenizer, made at test time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM

TEMPLATE = (
    "{% for message in messages %}<|begin|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|begin|>assistant\n{% endif %}"
)
_TEXTS = [
    "the quick brown fox jumps over the lazy dog",
    "what is the sum of twelve and seven and nineteen",
    "a question and its answer, a model and its evaluation",
]
_SIZES = {
    "vocab_size": 384,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}


def write_tokenizer(directory: Path) -> None:
    """A byte-level BPE of 384 tokens at most, in the files of a fast tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    trainer = trainers.BpeTrainer(
        vocab_size=380,
        special_tokens=["<|begin|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXTS, trainer)
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "bos_token": "<|begin|>",
        "eos_token": "<|end|>",
        "pad_token": "<|end|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    (directory / "chat_template.jinja").write_text(TEMPLATE)


def write_tiny_model(directory: Path, model_type: str = "llama", **changes: Any) -> Path:
    """A model directory of `model_type` with random weights (seed 0)."""
    directory.mkdir(parents=True, exist_ok=True)
    write_tokenizer(directory)
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **{**_SIZES, **changes})
    # Larger than the usual start: the likeliest token should be clear, and texts varied.
    config.initializer_range = 0.3
    AutoModelForCausalLM.from_config(config).to(torch.float32).save_pretrained(directory)
    return directory
