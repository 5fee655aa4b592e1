"""The same prompts through plain transformers: what the released numbers must equal.

Deliberately independent: it shares no code with the model host, the runner
or the eval bundle, and repeats the prompts' wording on purpose.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class PlainResult:
    """Shares of right answers, and the seconds the loop took without start-up."""

    truthfulqa_mc1_accuracy: Fraction
    arithmetic_accuracy: Fraction
    items: int
    run_seconds: float


class PlainLoop:
    """A model loaded the usual way, scoring with batch 1 in fp32."""

    def __init__(self, model_directory: Path, *, threads: int) -> None:
        # Read when torch is loaded: spinning threads would measure a machine's other work.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # type: ignore[no-untyped-call]
        torch.set_num_threads(threads)
        self._torch = torch
        self._tokenizer: Any = AutoTokenizer.from_pretrained(model_directory, local_files_only=True)
        self._model: Any = AutoModelForCausalLM.from_pretrained(
            model_directory, dtype=torch.float32, local_files_only=True
        )
        self._model.train(False)

    def run(self, suite: Path) -> PlainResult:
        """Score both suite files, one forward pass a choice and one greedy reply a sum."""
        questions = _read_lines(suite / "truthfulqa_mc1.jsonl")
        sums = _read_lines(suite / "arithmetic.jsonl")
        started = time.perf_counter()
        right = 0
        for item in questions:
            scores = self.score_choices(item["question"], item["choices"])
            best = max(score for index, score in enumerate(scores) if index != item["answer"])
            right += scores[item["answer"]] > best
        exact = sum(
            re.findall(r"-?\d+", self.reply(item["question"]))[-1:] == [item["answer"]]
            for item in sums
        )
        return PlainResult(
            truthfulqa_mc1_accuracy=Fraction(right, len(questions)),
            arithmetic_accuracy=Fraction(exact, len(sums)),
            items=len(questions) + len(sums),
            run_seconds=time.perf_counter() - started,
        )

    def score_choices(self, question: str, choices: list[str]) -> list[float]:
        """The log-likelihood of each choice."""
        torch = self._torch
        prompt = f"Q: {question}\nA:"
        start = len(self._tokenizer(prompt).input_ids)
        scores = []
        for choice in choices:
            tokens = torch.tensor([self._tokenizer(f"{prompt} {choice}").input_ids])
            with torch.inference_mode():
                logits = self._model(tokens).logits[0, :-1]
            likelihoods = torch.log_softmax(logits, -1).gather(1, tokens[0, 1:, None])[:, 0]
            scores.append(sum(likelihoods[start - 1 :].tolist()))
        return scores

    def reply(self, question: str, max_new_tokens: int = 24) -> str:
        """The greedy reply to a chat of one message."""
        prompt = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": question}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )
        with self._torch.inference_mode():
            output = self._model.generate(**prompt, max_new_tokens=max_new_tokens, do_sample=False)
        new = output[0, prompt["input_ids"].shape[1] :]
        return str(self._tokenizer.decode(new, skip_special_tokens=True))


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def main() -> None:
    """`python -m enclave.cli.demo_assets.plain_loop MODEL SUITE [--threads N]`, JSON out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("suite", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    result = PlainLoop(arguments.model, threads=arguments.threads).run(arguments.suite)
    print(json.dumps({name: str(value) for name, value in asdict(result).items()}))


if __name__ == "__main__":
    main()
