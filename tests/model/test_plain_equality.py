"""The released numbers are those of a plain transformers loop over the same prompts."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import enclave.cli.demo_assets as assets
from enclave.cli.demo_assets.model import default_cache, prepare_model
from enclave.cli.demo_assets.plain_loop import PlainLoop
from enclave.cli.demo_assets.suites import write_suites
from enclave.workload.sandbox.model_client import ModelClient
from tests.model.host_process import run_bundle, served

BUNDLE = Path(assets.__file__).parent / "bundle"


def assert_equal(frame: Any, loop: PlainLoop, suite: Path) -> None:
    outcome = loop.run(suite)
    metrics = frame["metrics"]
    for name in ("truthfulqa_mc1_accuracy", "arithmetic_accuracy"):
        share = getattr(outcome, name)
        printed = (Decimal(share.numerator) / share.denominator).quantize(Decimal("0.000001"))
        assert Decimal(metrics[name]["value"]) == printed
    assert (
        sum(metrics[n]["n"] for n in ("truthfulqa_mc1_accuracy", "arithmetic_accuracy"))
        == outcome.items
    )
    assert frame["controls"] == {"oracle": "1", "null_answer": "0"}
    assert frame["failed"] == 0


def test_on_a_tiny_model(tiny_model: Path, tmp_path: Path) -> None:
    write_suites(tmp_path, seed=5, items=8)
    with served(tiny_model, max_context=512) as (_, url):
        frame, _ = run_bundle(BUNDLE, tmp_path, url)
    assert_equal(frame, PlainLoop(tiny_model, threads=1), tmp_path)


def test_every_log_likelihood_is_the_same_number(tiny_model: Path, tmp_path: Path) -> None:
    write_suites(tmp_path, seed=6, items=10)
    items = [json.loads(s) for s in (tmp_path / "truthfulqa_mc1.jsonl").read_text().splitlines()]
    loop = PlainLoop(tiny_model, threads=1)
    with served(tiny_model, max_context=512) as (_, url):
        client = ModelClient(url, max_requests=100, max_tokens=24)
        for item in items:
            choices = [f" {choice}" for choice in item["choices"]]
            scores = client.score_choices(f"Q: {item['question']}\nA:", choices)
            assert scores == loop.score_choices(item["question"], item["choices"])
            reply = client.chat([{"role": "user", "content": item["question"]}], max_tokens=24)
            assert reply == loop.reply(item["question"])


@pytest.mark.slow
def test_on_the_real_model(tmp_path: Path) -> None:
    model = prepare_model(default_cache())
    write_suites(tmp_path, seed=5, items=4)
    with served(model, threads=2, max_context=2048) as (_, url):
        frame, _ = run_bundle(BUNDLE, tmp_path, url)
    assert_equal(frame, PlainLoop(model, threads=2), tmp_path)
