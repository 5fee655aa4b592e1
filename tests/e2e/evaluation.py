"""One evaluation through the real commands, each a process, with a tiny model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from enclave.cli.demo_processes import command_line, run_command
from tests.model.tiny import write_tiny_model

POLICIES = Path(__file__).resolve().parents[2] / "policies"
BUNDLE = Path(__file__).resolve().parent / "bundle"
ROLES = (("owner", "model-owner"), ("evaluator", "evaluator"))


def result_policy(max_bits: int = 512) -> dict[str, Any]:
    ratio = {"kind": "ratio", "low": "0", "high": "1", "step": "0.01", "min_n": 10, "max_digits": 6}
    return {
        "type": "https://w3id.org/double-blind/result-policy/v1",
        "max_bits": max_bits,
        "slot_seconds": 3600,
        "release_bytes": 4096,
        "metrics": [
            {"id": "accuracy", **ratio, "views": ["summary"]},
            {"id": "baseline", **ratio, "views": ["summary"]},
        ],
        "controls": [
            {"id": "null_answer", "expected": "0"},
            {"id": "oracle", "expected": "1"},
        ],
        "baselines": [{"metric": "accuracy", "baseline": "baseline"}],
    }


def rows(count: int = 12, **changes: Any) -> list[dict[str, Any]]:
    return [
        {"prompt": f"What is {n} plus {n + 1}?", "answer": str(2 * n + 1), **changes}
        for n in range(count)
    ]


@dataclass
class Evaluation:
    """The directories of both parties and the workload, prepared up to the approvals."""

    root: Path
    prompts: Sequence[dict[str, Any]] = field(default_factory=rows)
    bundle: Path = BUNDLE
    max_runs: int = 1
    min_tier: str = "T1"
    settings: Sequence[str] = ()
    more_plan: Sequence[str] = ()
    model: Path | None = None
    suite_files: dict[str, bytes] = field(default_factory=dict)

    @property
    def plan(self) -> Path:
        return self.root / "plan"

    @property
    def workload(self) -> Path:
        return self.root / "workload"

    def party(self, name: str) -> Path:
        return self.root / name

    def prepare(self) -> None:
        self.keygen()
        self.seal()
        self.agree()

    def keygen(self) -> None:
        for party, role in ROLES:
            state = str(self.party(party))
            run_command("keygen", "--role", role, "--name", party, "--state", state)

    def seal(self) -> None:
        model = self.model or write_tiny_model(self.root / "model")
        suite = self.root / "suite"
        suite.mkdir(exist_ok=True)
        text = "".join(json.dumps(row) + "\n" for row in self.prompts)
        (suite / "prompts.jsonl").write_text(text)
        for name, data in self.suite_files.items():
            (suite / name).write_bytes(data)
        owner, evaluator = str(self.party("owner")), str(self.party("evaluator"))
        run_command("owner", "seal", "--model", str(model), "--state", owner)
        command = ["evaluator", "seal", "--suite", str(suite), "--bundle", str(self.bundle)]
        run_command(*command, "--state", evaluator)

    def agree(self) -> None:
        values, policy = self.root / "values.json", self.root / "result_policy.json"
        run_command("attest", "reference-values", "--kind", "simulated", "--out", str(values))
        policy.write_text(json.dumps(result_policy()))
        run_command(
            *("plan", "new"),
            *("--owner", str(self.party("owner") / "public")),
            *("--evaluator", str(self.party("evaluator") / "public")),
            *("--attestation-policy", str(POLICIES / "unsafe_simulated.json")),
            *("--reference-values", str(values)),
            *("--result-policy", str(policy)),
            *("--max-runs", str(self.max_runs)),
            *("--min-tier", self.min_tier),
            *("--set", "engine.max_context=256", "--set", "engine.max_new_tokens=16"),
            *self.settings,
            *self.more_plan,
            *("--out", str(self.plan)),
        )
        for party, _ in ROLES:
            state = str(self.party(party))
            run_command(party, "approve", "--plan", str(self.plan), "--state", state, "--yes")

    @contextmanager
    def serve(self, *more: str) -> Iterator[Workload]:
        workload = Workload(self, more)
        try:
            yield workload
        finally:
            workload.stop()

    def arguments(self, workload: Workload, party: str) -> list[str]:
        return [
            *("--plan", str(self.plan), "--endpoint", workload.endpoint),
            *("--roots", str(workload.roots), "--state", str(self.party(party))),
        ]

    def call(self, workload: Workload, party: str, verb: str, *more: str) -> dict[str, Any]:
        return run_command(party, verb, *self.arguments(workload, party), *more)

    def upload_and_grant(self, workload: Workload) -> None:
        for party, _ in ROLES:
            self.call(workload, party, "upload")
        for party, _ in ROLES:
            self.call(workload, party, "grant")

    def run(self, workload: Workload) -> dict[str, Any]:
        return run_command("run", *self.arguments(workload, "evaluator"))


class Workload:
    """`doubleblind serve` as a process group of its own."""

    def __init__(self, evaluation: Evaluation, more: Sequence[str]) -> None:
        self.log = evaluation.root / "workload.log"
        self.broker_state = evaluation.workload / "broker"
        arguments = ["serve", "--plan", str(evaluation.plan), "--state", str(evaluation.workload)]
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                command_line(*arguments, "--listen", "127.0.0.1:0", *more, "--json"),
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        line = self.process.stdout.readline()
        self.ready = json.loads(line) if line else {}
        if "endpoint" not in self.ready:
            raise AssertionError(f"not serving: {self.ready} {self.log.read_text()[-2000:]}")
        self.endpoint = self.ready["endpoint"]
        self.roots = evaluation.root / "roots.pem"
        self.roots.write_bytes((self.broker_state / "simulated_root.pem").read_bytes())

    def descendants(self) -> list[int]:
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except OSError:
                    continue
                children.setdefault(parent, []).append(int(entry.name))
        found, queue = [], [self.process.pid]
        while queue:
            pid = queue.pop()
            found.append(pid)
            queue += children.get(pid, [])
        return found

    def kill(self) -> None:
        """kill -9 of the first process; everything else has to die of it."""
        pids = self.descendants()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        end = time.monotonic() + 10
        while any(_is_alive(pid) for pid in pids):
            assert time.monotonic() < end, "processes outlived the workload"
            time.sleep(0.05)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
