"""Secrets stay with their owners: canaries searched for everywhere else, during and after a run."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import save_file

from tests.e2e.canaries import (
    files_below,
    make_canary,
    search_inside,
    search_processes,
    search_temporary,
    search_tree,
)
from tests.e2e.conftest import AS_ROOT
from tests.e2e.evaluation import Evaluation, Workload, rows

pytestmark = pytest.mark.slow


def plant_in_model(model: Path, metadata: str, token: str) -> None:
    path = model / "model.safetensors"
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, metadata={"format": "pt", "note": metadata})
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary[token] = max(vocabulary.values()) + 1
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))


class Watcher:
    """Looks at every process and at the workload's own file tree while the run goes on."""

    def __init__(self, workload: Workload, canaries: list[str]) -> None:
        self.hits: set[str] = set()
        self.rounds = 0
        self.seen_inside: set[str] = set()
        self._workload = workload
        self._canaries = canaries
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            everyone = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
            self.hits.update(search_processes(everyone, self._canaries))
            self.rounds += 1
            if len(self.seen_inside) < len(self._canaries):
                hits = search_inside(self._workload.descendants(), self._canaries)
                self.seen_inside.update(hit.split(": ")[-1] for hit in hits if "plain" in hit)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> dict:
    started = time.time()
    root = tmp_path_factory.mktemp("secrecy")
    canaries = {n: make_canary(n) for n in ("prompt", "answer", "metadata", "token")}
    model = root / "model"
    shutil.copytree(tiny_model, model)
    plant_in_model(model, canaries["metadata"], canaries["token"])
    prompts = rows(12, pause=0.1)
    prompts[3]["prompt"] += f" {canaries['prompt']}"
    prompts[5]["answer"] = canaries["answer"]
    evaluation = Evaluation(root, prompts=prompts, model=model)
    evaluation.prepare()
    wanted = list(canaries.values())
    with evaluation.serve() as workload:
        evaluation.upload_and_grant(workload)
        with Watcher(workload, wanted) as watcher:
            evaluation.run(workload)
        results = {p: evaluation.call(workload, p, "result") for p in ("owner", "evaluator")}
        trees = search_inside(workload.descendants(), wanted)
    return {
        "evaluation": evaluation,
        "canaries": canaries,
        "watcher": watcher,
        "results": results,
        "inside": trees,
        "started": started,
    }


def test_search_finds_what_is_there(story: dict) -> None:
    evaluation, canaries = story["evaluation"], story["canaries"]
    hits = search_tree(evaluation.root / "model", canaries.values())
    assert any("canarymetada" in hit for hit in hits)
    assert any("canarytoken" in hit for hit in hits)
    hits = search_tree(evaluation.root / "suite", canaries.values())
    assert len({hit.split(": ")[1][:12] for hit in hits}) == 2


@pytest.mark.parametrize("place", ["workload", "plan", "owner", "evaluator"])
def test_no_canary_outside_its_owners_directory(story: dict, place: str) -> None:
    evaluation = story["evaluation"]
    folder = evaluation.root / place
    assert sum(1 for _ in files_below(folder)) > 3
    assert search_tree(folder, story["canaries"].values()) == []


def test_no_canary_in_logs_nor_beside(story: dict) -> None:
    evaluation = story["evaluation"]
    secret = [evaluation.root / "model", evaluation.root / "suite"]
    assert search_tree(evaluation.root, story["canaries"].values(), skip=secret) == []
    assert (evaluation.root / "workload.log").is_file()


def test_no_canary_in_any_process(story: dict) -> None:
    assert story["watcher"].rounds > 5
    assert story["watcher"].hits == set()


@pytest.mark.skipif(not AS_ROOT, reason="another user's memory can not be looked at")
def test_canaries_were_in_protected_memory_during_the_run(story: dict) -> None:
    """Otherwise not finding them afterwards would mean nothing."""
    assert len(story["watcher"].seen_inside) == 4


def test_no_canary_in_the_workloads_file_systems_after_the_run(story: dict) -> None:
    assert story["inside"] == []


def test_no_canary_in_temporary_directories(story: dict) -> None:
    root = story["evaluation"].root
    assert search_temporary(story["started"], story["canaries"].values(), skip=root) == []


def test_results_carry_numbers_only(story: dict) -> None:
    for result in story["results"].values():
        assert set(result["views"]) == {"summary"}
        assert set(result["views"]["summary"]) == {"accuracy", "baseline"}


@pytest.mark.skipif(not AS_ROOT, reason="the workload's directory has its own user only as root")
def test_the_workloads_directory_belongs_to_the_broker(story: dict) -> None:
    broker = story["evaluation"].workload / "broker"
    assert broker.stat().st_uid not in {0}
    assert broker.stat().st_mode & 0o077 == 0
