"""One run: open, evaluate, release, wipe, prove. However it ends, the secrets are gone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from attestation.collect import Attester
from enclave.core.binding import compute_binding
from enclave.core.errors import Refusal, RunRefused
from enclave.core.receipt import build_receipt_statement, close_receipt, closing_inputs
from enclave.core.run_facts import RunFacts, SealedRelease, WipeFacts
from enclave.core.times import print_slot
from enclave.core.vocabulary import ARTIFACTS
from enclave.workload.broker.archive import PlanArchive
from enclave.workload.broker.board import ProgressBoard
from enclave.workload.broker.compartments import ModelHost, Sandbox
from enclave.workload.broker.gate_client import Release
from enclave.workload.broker.live_session import LiveSession
from enclave.workload.broker.outcomes import close_refusal
from enclave.workload.launcher.client import LauncherClient
from enclave.workload.memory.memfd import MemfdMemory
from enclave.workload.memory.protected import ProtectedMemory, WipeReport
from enclave.workload.memory.tmpfs import TmpfsMemory
from enclave.workload.opening import OpenedArtifact, open_artifact
from enclave.workload.service.upload_store import UploadStore

_HUGE_PAGE: Final = 2 * 1024 * 1024
_MEMORY_SLACK: Final = 32 * 1024 * 1024


@dataclass(frozen=True)
class Surroundings:
    """What a run needs of the broker."""

    launcher: LauncherClient
    attester: Attester
    archive: PlanArchive
    stores: Mapping[str, UploadStore]
    now: Callable[[], datetime]
    separate_users: bool
    threads: int


@dataclass(frozen=True)
class _Evaluated:
    release: Release
    engine: Mapping[str, str]


def execute_run(live: LiveSession, board: ProgressBoard, around: Surroundings) -> None:
    """Execute the run that `live` began; posts every stage and the end. Never raises."""
    try:
        _execute(live, board, around)
    except Refusal as refusal:
        _refuse(live, board, refusal)
    except Exception:  # noqa: BLE001 - a run must end in a typed refusal, without text of its own
        _refuse(live, board, RunRefused("run_failed", expected="no internal error"))


def _refuse(live: LiveSession, board: ProgressBoard, refusal: Refusal) -> None:
    live.forget_keys()
    live.state.refuse()
    live.gate.close()
    board.refuse(refusal)


def _execute(live: LiveSession, board: ProgressBoard, around: Surroundings) -> None:
    slot_seconds = live.loaded.result_policy.slot_seconds
    started = around.now()
    board.post("record", 0, 1)
    around.archive.spend_run(live.run)
    board.post("record", 1, 1)
    memory = _make_memory(live, around)
    try:
        evaluated = _evaluate(live, board, around, memory, print_slot(started, slot_seconds))
    finally:
        live.forget_keys()
        board.post("wipe", 0, 1)
        wiped = _wipe(memory, live, around)
        board.post("wipe", 1, 1)
    board.post("receipt", 0, 1)
    facts = _state_facts(live, evaluated, wiped, started, around.now())
    statement = build_receipt_statement(facts)
    envelope = live.gate.sign(statement)
    closing = around.attester.collect_evidence(compute_binding(closing_inputs(facts, statement)))
    receipt = close_receipt(envelope, closing.to_bytes())
    around.archive.keep_run(live.run, evaluated.release.views, receipt)
    live.state.finish()
    live.gate.close()
    board.post("receipt", 1, 1)
    board.finish()


def _make_memory(live: LiveSession, around: Surroundings) -> ProtectedMemory:
    if not around.separate_users:
        return MemfdMemory()
    size = _MEMORY_SLACK
    for store in around.stores.values():
        status = store.status()
        size += status.total_bytes
        with store.open_source() as source:
            size += _HUGE_PAGE * (len(source.index.streams) + 1)
    path = around.launcher.mount_memory(live.state.session, size)
    return TmpfsMemory(Path(path))


def _evaluate(
    live: LiveSession,
    board: ProgressBoard,
    around: Surroundings,
    memory: ProtectedMemory,
    slot: str,
) -> _Evaluated:
    plan = live.loaded.plan
    session_memory = live.state.session if around.separate_users else ""
    with contextlib.ExitStack() as closing:
        # Started first: it imports its libraries while the artifacts open.
        model = ModelHost(around.launcher, plan, f"model-{live.run}", session_memory)
        closing.callback(model.close)
        opened = _open_artifacts(live, board, around, memory)
        live.forget_keys()
        board.post("load", 0, 1)
        engine = model.load(opened["model"])
        board.post("load", 1, 1)
        sandbox = Sandbox(around.launcher, plan, f"run-{live.run}", live.gate.result_end)
        closing.callback(sandbox.close)
        live.gate.close_result_end()
        with sandbox.take_listener() as listener:
            model.serve(listener)
        sandbox.send_inputs(opened["bundle"], opened["suite"])
        return _Evaluated(_await_release(live, board, sandbox, slot), engine)


def _await_release(live: LiveSession, board: ProgressBoard, sandbox: Sandbox, slot: str) -> Release:
    """From the first line of eval code to the gate's decision."""
    try:
        live.gate.request_release(live.run, slot)
        sandbox.follow(board.post)
        board.post("release", 0, 1)
        release = live.gate.receive_release()
        board.post("release", 1, 1)
    except Refusal as refusal:
        raise close_refusal(refusal) from None
    return release


def _open_artifacts(
    live: LiveSession, board: ProgressBoard, around: Surroundings, memory: ProtectedMemory
) -> dict[str, OpenedArtifact]:
    opened = {}
    for number, artifact in enumerate(ARTIFACTS):
        board.post("open", number, len(ARTIFACTS))
        terms = live.loaded.plan.artifact(artifact)
        granted = live.keys[artifact]
        with around.stores[artifact].open_source() as source:
            opened[artifact] = open_artifact(
                source,
                granted.key.view,
                granted.salt,
                terms.commitment,
                memory,
                terms,
                threads=around.threads,
            )
    board.post("open", len(ARTIFACTS), len(ARTIFACTS))
    return opened


def _wipe(memory: ProtectedMemory, live: LiveSession, around: Surroundings) -> WipeReport:
    """Overwrite and give back; the compartments that mapped the files are gone by now."""
    try:
        return memory.wipe()
    finally:
        if around.separate_users:
            around.launcher.unmount_memory(live.state.session)


def _state_facts(
    live: LiveSession,
    evaluated: _Evaluated,
    wiped: WipeReport,
    started: datetime,
    finished: datetime,
) -> RunFacts:
    policy = live.loaded.result_policy
    release = evaluated.release
    return RunFacts(
        plan=live.loaded.plan,
        session=live.state.session,
        run=live.run,
        keys=live.state.keys,
        approvals=live.state.approvals(started).envelopes,
        evidence=live.state.granted_evidence(),
        party_evidence=tuple(live.state.party_evidence.values()),
        engine=evaluated.engine,
        isolation=live.isolation,
        controls=tuple(sorted(control.id for control in policy.controls)),
        completed=release.completed,
        failed=release.failed,
        wipe=WipeFacts(_round_up(wiped.files), _round_up(wiped.bytes)),
        releases=tuple(
            SealedRelease(view.view, view.role, view.digest, len(view.sealed))
            for view in release.views
        ),
        bits=release.bits,
        runs_spent=live.run,
        started_slot=print_slot(started, policy.slot_seconds),
        finished_slot=print_slot(finished, policy.slot_seconds),
    )


def _round_up(count: int) -> int:
    """The next power of two: exact totals would tell each party the size of the other's secrets."""
    return 1 << (count - 1).bit_length() if count > 1 else count
