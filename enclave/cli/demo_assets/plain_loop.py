"""The same prompts through plain transformers: what the released numbers must equal.

Deliberately independent: it shares no code with the model host, the runner
or the eval bundle, and repeats the prompts' wording on purpose.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class PlainResult:
    """Shares of right answers, and the seconds the loop took without start-up."""

    truthfulqa_mc1: Fraction
    arithmetic_exact: Fraction
    items: int
    run_seconds: float
    load_seconds: float


def run_plain_loop(model_directory: Path, suite: Path, *, threads: int) -> PlainResult:
    """Score both suite files with batch 1 in fp32, greedy, one forward pass a choice."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    started = time.perf_counter()
    torch.set_num_threads(threads)
    tokenizer: Any = AutoTokenizer.from_pretrained(model_directory, local_files_only=True)
    model: Any = AutoModelForCausalLM.from_pretrained(
        model_directory, dtype=torch.float32, local_files_only=True
    )
    model.eval()
    loaded = time.perf_counter()

    right = 0
    questions = _read_lines(suite / "truthfulqa_mc1.jsonl")
    for item in questions:
        prompt = f"Q: {item['question']}\nA:"
        start = len(tokenizer(prompt).input_ids)
        scores = []
        for choice in item["choices"]:
            tokens = torch.tensor([tokenizer(f"{prompt} {choice}").input_ids])
            with torch.inference_mode():
                logits = model(tokens).logits[0, :-1]
            likelihoods = torch.log_softmax(logits, -1).gather(1, tokens[0, 1:, None])[:, 0]
            scores.append(sum(likelihoods[start - 1 :].tolist()))
        right += scores[item["answer"]] > max(
            score for index, score in enumerate(scores) if index != item["answer"]
        )

    exact = 0
    sums = _read_lines(suite / "arithmetic.jsonl")
    for item in sums:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": item["question"]}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )
        with torch.inference_mode():
            output = model.generate(**prompt, max_new_tokens=24, do_sample=False)
        reply = tokenizer.decode(
            output[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True
        )
        exact += re.findall(r"-?\d+", reply)[-1:] == [item["answer"]]
    return PlainResult(
        truthfulqa_mc1=Fraction(right, len(questions)),
        arithmetic_exact=Fraction(exact, len(sums)),
        items=len(questions) + len(sums),
        run_seconds=time.perf_counter() - loaded,
        load_seconds=loaded - started,
    )


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def main() -> None:
    """`python -m enclave.cli.demo_assets.plain_loop MODEL SUITE [--threads N]`, JSON out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("suite", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    result = run_plain_loop(arguments.model, arguments.suite, threads=arguments.threads)
    print(json.dumps({name: str(value) for name, value in asdict(result).items()}))


if __name__ == "__main__":
    main()
