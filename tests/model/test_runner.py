"""The runner in a process of its own: honest bundles, faults, hostile ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.model.host_process import run_bundle

MANIFEST = """
name = "test"
kind = "python"
entry = "score.py:evaluate"
environment = "python-stdlib"
needs = ["chat", "completions", "logprobs"]
suite_files = ["items.jsonl"]
stages = ["items"]
[outputs]
metrics = ["share"]
controls = ["oracle"]
[limits]
requests = 3
max_tokens = 8
"""
GOOD = """
RESULT = {"metrics": {"share": {"value": "0.5", "n": 2}}, "controls": {"oracle": "1"},
          "completed": 2, "failed": 0}
def evaluate(suite, model, report):
    return RESULT
"""
CANARY = "CANARY-91ac"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    directory = tmp_path / "suite"
    directory.mkdir()
    (directory / "items.jsonl").write_text(json.dumps({"question": CANARY}) + "\n")
    return directory


def make_bundle(tmp_path: Path, code: str, **files: str) -> Path:
    directory = tmp_path / "bundle"
    directory.mkdir()
    (directory / "bundle.toml").write_text(MANIFEST)
    (directory / "score.py").write_text(code)
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text)
    return directory


def evaluate(
    tmp_path: Path, suite: Path, code: str, url: str = "http://127.0.0.1:9", **files: str
) -> Any:
    return run_bundle(make_bundle(tmp_path, code, **files), suite, url)[0]


def body(lines: str, result: str = "RESULT") -> str:
    indented = "".join(f"    {line}\n" for line in lines.splitlines())
    return f"{GOOD}\ndef evaluate(suite, model, report):\n{indented}    return {result}\n"


def test_one_result_frame(tmp_path: Path, suite: Path) -> None:
    assert evaluate(tmp_path, suite, GOOD) == {
        "metrics": {"share": {"value": "0.5", "n": 2}},
        "controls": {"oracle": "1"},
        "completed": 2,
        "failed": 0,
    }


def test_progress_is_counts_of_declared_stages(tmp_path: Path, suite: Path) -> None:
    code = body("for done in range(1001):\n    report('items', done, 1000)")
    frame, progress = run_bundle(make_bundle(tmp_path, code), suite, "http://127.0.0.1:9")
    assert "metrics" in frame
    assert progress[0] == {"op": "progress", "done": 0, "total": 1000}
    assert progress[-1]["done"] == 1000
    assert len(progress) < 50


FAULTS: dict[str, tuple[str, str]] = {
    "raises": (body(f"raise ValueError('{CANARY}')"), "bundle_failed"),
    "raises at import": (f"raise RuntimeError('{CANARY}')", "bundle_failed"),
    "syntax error": (f"def {CANARY}", "bundle_failed"),
    "exits": (body(f"raise SystemExit('{CANARY}')"), "bundle_failed"),
    "interrupts": (body("raise KeyboardInterrupt"), "bundle_failed"),
    "chooses its own code": (
        body(
            "from enclave.core.errors import RunRefused\nraise RunRefused('canary_as_a_code')",
        ),
        "bundle_failed",
    ),
    "recurses": (body("evaluate(suite, model, report)"), "bundle_failed"),
    "undeclared stage": (body(f"report('{CANARY}', 0, 1)"), "bundle_failed"),
    "count out of range": (body("report('items', 2, 1)"), "bundle_failed"),
    "model out of reach": (body("model.chat([], max_tokens=1)"), "bundle_failed"),
    "no function": ("evaluate = None", "bundle_entry_missing"),
    "no result": (body("", "None"), "bundle_result_malformed"),
    "unknown metric": (
        body("RESULT['metrics']['other'] = RESULT['metrics']['share']"),
        "bundle_result_malformed",
    ),
    "missing metric": (body("RESULT['metrics'] = {}"), "bundle_result_malformed"),
    "missing control": (body("RESULT['controls'] = {}"), "bundle_result_malformed"),
    "extra key": (body(f"RESULT['note'] = '{CANARY}'"), "bundle_result_malformed"),
    "float value": (
        body("RESULT['metrics']['share']['value'] = 0.5"),
        "bundle_result_malformed",
    ),
    "NaN": (body("RESULT['metrics']['share']['value'] = 'NaN'"), "bundle_result_malformed"),
    "minus zero": (body("RESULT['metrics']['share']['value'] = '-0'"), "bundle_result_malformed"),
    "exponent": (body("RESULT['metrics']['share']['value'] = '1e-1'"), "bundle_result_malformed"),
    "count a flag": (body("RESULT['completed'] = True"), "bundle_result_malformed"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_has_a_fixed_code_and_no_text(name: str, tmp_path: Path, suite: Path) -> None:
    code, expected = FAULTS[name]
    assert evaluate(tmp_path, suite, code) == {"failed": expected}


def test_output_goes_nowhere(tmp_path: Path, suite: Path) -> None:
    # run_bundle asserts that the process wrote nothing.
    lines = f"import os, sys\nprint('{CANARY}')\nprint('{CANARY}', file=sys.stderr)\n"
    lines += f"os.write(1, b'{CANARY}')\nos.write(2, b'{CANARY}')\nos.system('echo {CANARY}')"
    assert "metrics" in evaluate(tmp_path, suite, body(lines))


def test_a_bundle_shadows_nothing(tmp_path: Path, suite: Path) -> None:
    lines = "import json, enclave.core.errors, random\n"
    lines += "assert not hasattr(json, 'SHADOW') and not hasattr(random, 'SHADOW')\n"
    lines += "from . import own\nRESULT['completed'] = own.COUNT"
    shadow = "SHADOW = 1"
    frame = evaluate(
        tmp_path,
        suite,
        body(lines),
        json=shadow,
        random=shadow,
        enclave=shadow,
        sitecustomize=shadow,
        own="COUNT = 7",
    )
    assert frame["completed"] == 7


def test_python_path_changes_nothing(
    tmp_path: Path, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = make_bundle(tmp_path, body("import random\nassert not hasattr(random, 'SHADOW')"))
    monkeypatch.chdir(bundle)
    (bundle / "wave.py").write_text("SHADOW = 1")
    (bundle / "score.py").write_text(body("import wave\nassert not hasattr(wave, 'SHADOW')"))
    assert "metrics" in run_bundle(bundle, suite, "http://127.0.0.1:9")[0]


def test_another_environment_than_the_plans(tmp_path: Path, suite: Path) -> None:
    bundle = make_bundle(tmp_path, GOOD)
    frame, _ = run_bundle(bundle, suite, "http://127.0.0.1:9", environment="other")
    assert frame == {"failed": "bundle_environment_mismatch"}


def test_a_missing_suite_file(tmp_path: Path, suite: Path) -> None:
    (suite / "items.jsonl").unlink()
    assert evaluate(tmp_path, suite, GOOD) == {"failed": "suite_file_missing"}


def test_the_model_client(tmp_path: Path, suite: Path, tiny_url: str) -> None:
    lines = """
chat = model.chat([{"role": "user", "content": "one"}], max_tokens=8)
assert isinstance(chat, str) and chat
scores = model.score_choices("the quick", [" brown", " brown fox"])
assert 0 > scores[0] > scores[1]
try:
    model.chat([], max_tokens=1)
except ValueError as refused:
    assert refused.code == "parameter_type"
try:
    model.chat([], max_tokens=1)
except ValueError as refused:
    assert refused.code == "limit_requests"
RESULT["completed"] = 4
"""
    assert evaluate(tmp_path, suite, body(lines), tiny_url)["completed"] == 4


def test_a_choice_is_scored_by_the_tokens_behind_the_prompt(
    tmp_path: Path, suite: Path, tiny_url: str
) -> None:
    lines = """
whole, = model.complete("the quick brown fox", max_tokens=0, echo=True, logprobs=0)
values = whole["logprobs"]["token_logprobs"]
starts = whole["logprobs"]["text_offset"]
score, = model.score_choices("the quick", [" brown fox"])
behind = [v for v, s in zip(values, starts) if s >= len("the quick")]
assert 0 < len(behind) < len(values)
assert score == sum(behind)
RESULT["completed"] = 9
"""
    assert evaluate(tmp_path, suite, body(lines), tiny_url)["completed"] == 9
