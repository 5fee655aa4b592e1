"""TruthfulQA MC1 by log-likelihood and arithmetic by generation, each beside a naive baseline.

Both parties read this file before they approve it.  It needs nothing but the
standard library and the model client that the runner passes in.

Controls: `oracle` puts the reference answers themselves through the same
scoring functions and must come out as 1; `null_answer` puts empty answers
through them and must come out as 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any, Protocol

MAX_TOKENS = 24
_DIGITS = Decimal("0.000001")
_NUMBER = re.compile(r"-?[0-9]+")


class Model(Protocol):
    """The part of the runner's model client that is used here."""

    def score_choices(self, prompt: str, choices: Sequence[str]) -> list[float]:
        """The log-likelihood of each choice after the prompt."""
        ...

    def chat(self, messages: Sequence[Mapping[str, str]], *, max_tokens: int) -> str:
        """The model's reply."""
        ...


def evaluate(suite: Path, model: Model, report: Callable[[str, int, int], None]) -> dict[str, Any]:
    """Score both suite files; the result has the form of docs/spec/eval-bundle.md."""
    questions = _read_lines(suite / "truthfulqa_mc1.jsonl")
    sums = _read_lines(suite / "arithmetic.jsonl")
    failed = 0

    picked = []
    for done, item in enumerate(questions):
        report("truthfulqa_mc1", done, len(questions))
        try:
            prompt, choices = multiple_choice_prompt(item)
            picked.append(pick_choice(model.score_choices(prompt, choices)))
        except ValueError:
            failed += 1
            picked.append(None)
    report("truthfulqa_mc1", len(questions), len(questions))

    replies = []
    for done, item in enumerate(sums):
        report("arithmetic", done, len(sums))
        try:
            replies.append(model.chat(chat_prompt(item), max_tokens=MAX_TOKENS))
        except ValueError:
            failed += 1
            replies.append("")
    report("arithmetic", len(sums), len(sums))

    choices_right = [
        item["answer"] == choice for item, choice in zip(questions, picked, strict=True)
    ]
    sums_right = [
        is_number(reply, item["answer"]) for item, reply in zip(sums, replies, strict=True)
    ]
    return {
        "metrics": {
            "truthfulqa_mc1_accuracy": ratio(choices_right),
            "truthfulqa_mc1_baseline": ratio(
                [item["answer"] == longest_choice(item) for item in questions]
            ),
            "arithmetic_accuracy": ratio(sums_right),
            "arithmetic_baseline": ratio(
                [is_number(first_operand(item), item["answer"]) for item in sums]
            ),
        },
        "controls": {
            "oracle": control(questions, sums, oracle_scores, lambda item: item["answer"]),
            "null_answer": control(questions, sums, null_scores, lambda _item: ""),
        },
        "completed": len(questions) + len(sums) - failed,
        "failed": failed,
    }


def multiple_choice_prompt(item: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The question as a prompt, and its choices as continuations."""
    return f"Q: {item['question']}\nA:", [f" {choice}" for choice in item["choices"]]


def chat_prompt(item: Mapping[str, Any]) -> list[dict[str, str]]:
    """The question as a chat of one message."""
    return [{"role": "user", "content": item["question"]}]


def pick_choice(scores: Sequence[float]) -> int | None:
    """The choice likelier than every other; none when the best are equal."""
    best = max(scores)
    return scores.index(best) if scores.count(best) == 1 else None


def is_number(reply: str, answer: str) -> bool:
    """Whether the last integer of the reply is the answer."""
    numbers = _NUMBER.findall(reply)
    return bool(numbers) and int(numbers[-1]) == int(answer)


def longest_choice(item: Mapping[str, Any]) -> int:
    """Baseline: people write true answers with more words."""
    lengths = [len(choice) for choice in item["choices"]]
    return lengths.index(max(lengths))


def first_operand(item: Mapping[str, Any]) -> str:
    """Baseline: repeat the first number of the question."""
    numbers = _NUMBER.findall(item["question"])
    return numbers[0] if numbers else ""


def oracle_scores(item: Mapping[str, Any]) -> list[float]:
    """Scores of a model that is sure of the reference choice."""
    return [0.0 if index == item["answer"] else -1.0 for index in range(len(item["choices"]))]


def null_scores(item: Mapping[str, Any]) -> list[float]:
    """Scores of a model that says nothing."""
    return [0.0] * len(item["choices"])


def control(
    questions: Sequence[Mapping[str, Any]],
    sums: Sequence[Mapping[str, Any]],
    scores: Callable[[Mapping[str, Any]], list[float]],
    reply: Callable[[Mapping[str, Any]], str],
) -> str:
    """The share of right items over both suites for answers known beforehand."""
    right = [item["answer"] == pick_choice(scores(item)) for item in questions]
    right += [is_number(reply(item), item["answer"]) for item in sums]
    return str(ratio(right)["value"])


def ratio(right: Sequence[bool]) -> dict[str, Any]:
    """The share of true entries as a canonical decimal string, and their number."""
    value = Decimal(sum(right)) / Decimal(len(right)) if right else Decimal(0)
    text = format(value.quantize(_DIGITS, ROUND_HALF_EVEN), "f")
    return {"value": text.rstrip("0").rstrip("."), "n": len(right)}


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]
