"""The demonstration, told in stages: who does what, with which command, and what each got."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from enclave.cli.demo_assets.model import prepare_model
from enclave.cli.demo_assets.suites import write_suites
from enclave.cli.demo_processes import run_command, running_workload, show_command
from enclave.cli.output import Output
from enclave.core.errors import RunRefused

_MARKER = ".doubleblind-demo"
_SOURCE_POLICIES = Path(__file__).resolve().parents[2] / "policies"
_INSTALLED_POLICIES = Path(sys.prefix) / "share" / "double-blind-enclave" / "policies"
_POLICIES = _SOURCE_POLICIES if _SOURCE_POLICIES.is_dir() else _INSTALLED_POLICIES
_BUNDLE = Path(__file__).resolve().parent / "demo_assets" / "bundle"
_PARTIES = (("owner", "model-owner", "Demo Lab"), ("evaluator", "evaluator", "Demo Institute"))


class _Stages:
    """Names, explains and times the stages."""

    def __init__(self, output: Output) -> None:
        self.rows: list[dict[str, Any]] = []
        self._output = output

    @contextmanager
    def stage(self, name: str, text: str) -> Iterator[None]:
        self._output.heading(f"{len(self.rows) + 1}. {text}")
        start = time.monotonic()
        yield
        seconds = round(time.monotonic() - start, 2)
        self.rows.append({"stage": name, "seconds": seconds})
        self._output.say(f"   {seconds:.1f} s", style="dim")


def tell_story(output: Output, out: Path, *, items: int | None, cache: Path) -> dict[str, Any]:
    """Run everything; returns the object that `doubleblind demo --json` ends with."""
    _prepare_folder(out)
    output.alarm(
        "SIMULATED ATTESTATION",
        "This demonstration shows the whole protocol, not a protected machine: whoever "
        "runs this machine can read everything.",
    )
    started = time.monotonic()
    stages = _Stages(output)
    with stages.stage("assets", "Getting a real model and real prompts"):
        model = prepare_model(cache, report=lambda text: output.say(f"   {text}"))
        sizes = write_suites(out / "suite", seed=secrets.randbits(63), items=items)
        output.done(f"SmolLM2-135M-Instruct in {model}")
        output.done(f"{sizes.truthfulqa} TruthfulQA and {sizes.arithmetic} arithmetic prompts")
    prepared = time.monotonic()
    _prepare_parties(output, stages, out, model)
    _agree(output, stages, out)
    with contextlib.ExitStack() as workload:
        with stages.stage("serve", "The host starts the workload, which tries to break itself"):
            running = running_workload(out / "workload", out / "plan", out / "workload.log")
            ready = workload.enter_context(running)
            output.done(f"listening on {ready['endpoint']}, isolation {ready['tier']}")
        releases = _evaluate(output, stages, out, ready)
    receipt = Path(releases["owner"]["receipt"])
    audit = _audit(output, stages, out, receipt)
    total = time.monotonic() - prepared
    _show_ending(output, releases, receipt, audit, total)
    return {
        "stages": stages.rows,
        "seconds": round(total, 2),
        "preparation_seconds": round(prepared - started, 2),
        "releases": {party: result["views"] for party, result in releases.items()},
        "samples": releases["owner"]["samples"],
        "plan": releases["owner"]["plan"],
        "receipt": str(receipt),
        "audit": audit,
        "directory": str(out),
    }


def _prepare_folder(out: Path) -> None:
    if out.exists():
        if not (out / _MARKER).is_file():
            raise RunRefused(
                "demo_directory_taken",
                expected="a new directory or that of an earlier demo",
                got=str(out),
                hint="choose another one with --out",
            )
        shutil.rmtree(out)
    out.mkdir(parents=True)
    (out / _MARKER).touch()


def _prepare_parties(output: Output, stages: _Stages, out: Path, model: Path) -> None:
    with stages.stage("keygen", "Each party makes its keys"):
        for party, role, name in _PARTIES:
            run_command("keygen", "--role", role, "--name", name, "--state", str(out / party))
            output.done(f"{name} ({role}) in {out / party}")
    with stages.stage("seal", "Each party seals its secrets under a fresh key"):
        run_command("owner", "seal", "--model", str(model), "--state", str(out / "owner"))
        output.done("weights, tokenizer and template: one commitment, no content")
        run_command(
            "evaluator",
            "seal",
            "--suite",
            str(out / "suite"),
            "--bundle",
            str(_BUNDLE),
            "--state",
            str(out / "evaluator"),
        )
        output.done("prompts and reference answers; the eval code, which both may read")


def _agree(output: Output, stages: _Stages, out: Path) -> None:
    plan = str(out / "plan")
    with stages.stage("plan", "They write down what they agree to"):
        values = str(out / "reference_values.json")
        run_command("attest", "reference-values", "--kind", "simulated", "--out", values)
        written = run_command(
            "plan",
            "new",
            "--owner",
            str(out / "owner" / "public"),
            "--evaluator",
            str(out / "evaluator" / "public"),
            "--attestation-policy",
            str(_POLICIES / "unsafe_simulated.json"),
            "--reference-values",
            values,
            "--result-policy",
            str(_POLICIES / "result_demo.json"),
            "--title",
            "Truthfulness and arithmetic of a small model",
            "--min-tier",
            "T1",
            "--out",
            plan,
        )
        output.done(f"plan {written.get('plan', '')[:16]}… in {plan}")
    with stages.stage("approve", "Both read it and sign it: a changed byte voids it"):
        for party, extra in (("owner", ["--bundle", str(_BUNDLE)]), ("evaluator", [])):
            run_command(
                party, "approve", "--plan", plan, "--state", str(out / party), "--yes", *extra
            )
            output.done(f"approved by the {party}")


def _evaluate(
    output: Output, stages: _Stages, out: Path, ready: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    roots = out / "roots.pem"
    roots.write_bytes((out / "workload" / "broker" / "simulated_root.pem").read_bytes())
    common = ["--plan", str(out / "plan"), "--endpoint", ready["endpoint"], "--roots", str(roots)]
    with stages.stage("upload", "Each appraises the workload's evidence, then uploads ciphertext"):
        for party, _, name in _PARTIES:
            answer = run_command(party, "upload", *common, "--state", str(out / party))
            sent = sum(entry["bytes"] for entry in answer["uploads"].values())
            output.done(f"{name}: evidence accepted, {sent / 1e6:.1f} MB of ciphertext")
    with stages.stage("grant", "Each grants its keys to the attested session, for one run"):
        for party, _, name in _PARTIES:
            answer = run_command(party, "grant", *common, "--state", str(out / party))
            output.done(f"{name}: run {answer.get('run', 1)} recorded, then granted")
    with stages.stage("run", "The evaluation runs; only counts come out"):
        arguments = ["run", *common, "--state", str(out / "evaluator")]
        if output.as_json:
            run_command(*arguments)
        else:
            sys.stdout.flush()
            show_command(*arguments)
    releases = {}
    with stages.stage("result", "Each opens what was agreed for it"):
        for party, _, name in _PARTIES:
            releases[party] = run_command(party, "result", *common, "--state", str(out / party))
            output.done(f"{name} opened {', '.join(releases[party]['views'])}")
    return releases


def _audit(output: Output, stages: _Stages, out: Path, receipt: Path) -> dict[str, Any]:
    with stages.stage("audit", "An auditor checks the receipt, offline"):
        audit = run_command(
            "audit",
            str(receipt),
            "--plan",
            str(out / "plan"),
            "--roots",
            str(out / "roots.pem"),
        )
        checks = audit.get("checks", [])
        states = [check["state"] for check in checks]
        output.done(f"{states.count('verified')} of {len(states)} checks verified")
    return {"verdict": audit.get("verdict"), "checks": len(checks)}


def _show_ending(
    output: Output,
    releases: dict[str, dict[str, Any]],
    receipt: Path,
    audit: dict[str, Any],
    seconds: float,
) -> None:
    output.heading("What each role learned")
    for party, _, name in _PARTIES:
        for view, metrics in releases[party]["views"].items():
            output.say(f"   {name}, view {view}:")
            output.facts([(f"  {metric}", str(value)) for metric, value in metrics.items()])
    output.say("   Host operator: ciphertext, sizes, times, counts of progress")
    output.say(f"   Auditor: {audit['checks']} checks, no score")
    output.say()
    output.done(f"Everything in {seconds:.0f} s")
    output.say(f"Receipt: {receipt}")
    command = Path(sys.prefix) / "bin" / "doubleblind"
    output.say(
        f"Check it yourself: {command if command.is_file() else 'doubleblind'} audit {receipt}"
    )
    if json.dumps(releases["owner"]["views"]) != json.dumps(releases["evaluator"]["views"]):
        output.warn("the two parties opened different numbers")
