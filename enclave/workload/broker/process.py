"""The broker process: opens every plan's session and serves until it is told to stop."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attestation.collect import Attester, open_attester
from attestation.errors import AttestationError
from attestation.parse.trust_roots import parse_trust_roots
from attestation.types import SIMULATED
from enclave.core.errors import PlanRefused, Refusal, SessionRefused
from enclave.core.run_facts import IsolationFacts
from enclave.core.vocabulary import ARTIFACTS
from enclave.workload.broker.archive import PlanArchive, write_state_file
from enclave.workload.broker.facade import Broker, PlanDesk
from enclave.workload.broker.gate_client import GateClient
from enclave.workload.broker.live_session import LiveSession, open_session
from enclave.workload.broker.plans import LoadedPlan, load_plan
from enclave.workload.broker.run import Surroundings
from enclave.workload.isolation.kernel import harden_process
from enclave.workload.isolation.swap import refuse_swap
from enclave.workload.launcher.client import LauncherClient
from enclave.workload.launcher.selftest import demand_tier, run_selftest
from enclave.workload.memory.process import disable_core_dumps, make_undumpable
from enclave.workload.service.identity import ServerIdentity, make_server_identity
from enclave.workload.service.peers import refuse_unpinnable
from enclave.workload.service.server import RunningServer, serve_enclave
from enclave.workload.service.upload_store import open_upload_store

READY_FILE = "ready.json"
ROOT_FILE = "simulated_root.pem"
_GATE_SECONDS = 7 * 24 * 3600
_MAX_ROOTS = 1024 * 1024


def main() -> int:
    """Serve; the exit status is 0 after a clean stop."""
    options = _parse_arguments()
    harden_process()
    disable_core_dumps()
    make_undumpable()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    try:
        broker, server, ready = _start(options)
    except (Refusal, AttestationError) as error:
        _announce(options, {"error": _describe(error)}, f"refused to start: {error}")
        return 70
    text = f"Listening on {ready['endpoint']} ({ready['tier']}, attester {options.attester})"
    _announce(options, ready, text)
    while not stop.wait(1.0):
        pass
    server.stop()
    broker.close()
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m enclave.workload.broker")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--plan", type=Path, action="append", required=True)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--attester", required=True)
    parser.add_argument("--party-roots", type=Path)
    parser.add_argument("--production", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _start(options: argparse.Namespace) -> tuple[Broker, RunningServer, dict[str, Any]]:
    state: Path = options.state
    (state / READY_FILE).unlink(missing_ok=True)
    if options.production and options.attester == SIMULATED:
        raise SessionRefused(
            "attester_simulated", expected="a hardware attester in production", got=SIMULATED
        )
    if options.production:
        refuse_swap()
    launcher = LauncherClient.from_environment()
    attester = open_attester(options.attester)
    if options.attester == SIMULATED:
        write_state_file(state / ROOT_FILE, attester.root_certificates())
    tls = make_server_identity(datetime.now(UTC))
    opener = _SessionOpener(launcher, tls)
    desks: dict[str, PlanDesk] = {}
    for folder in options.plan:
        loaded = load_plan(folder)
        if loaded.plan.digest in desks:
            raise PlanRefused("plan_duplicate", expected="each plan once")
        refuse_unpinnable(loaded.plan, {name: desk.loaded.plan for name, desk in desks.items()})
        desks[loaded.plan.digest] = _open_desk(state, loaded, launcher, attester, opener)
    roots = _read_roots(options.party_roots)
    broker = Broker(desks, renew=opener.open, party_roots=roots)
    server = serve_enclave(broker, tls, options.listen, production=options.production)
    host = options.listen.rpartition(":")[0]
    ready = {
        "endpoint": f"{host}:{server.port}",
        "plans": sorted(desks),
        "tier": next(iter(desks.values())).live.isolation.tier,
        "attester": options.attester,
        "pid": os.getpid(),
    }
    write_state_file(state / READY_FILE, json.dumps(ready).encode())
    return broker, server, ready


class _SessionOpener:
    """Opens sessions: the probes first, then a gate, then keys."""

    def __init__(self, launcher: LauncherClient, tls: ServerIdentity) -> None:
        self._launcher = launcher
        self._tls = tls
        self.separate = bool(launcher.describe()["tier"] != "T1")

    def open(self, loaded: LoadedPlan) -> LiveSession:
        """A fresh session. Raises IsolationRefused `sandbox_unavailable`, `tier_too_low`."""
        tested = run_selftest(self._launcher)
        demand_tier(tested, loaded.plan.isolation.min_tier)
        facts = IsolationFacts(
            tier=tested.tier,
            profile_digest=tested.profile_digest,
            probes_tried=tested.tried,
            probes_refused=tested.refused,
        )
        return open_session(
            loaded,
            self._tls.spki_sha256,
            start_gate=lambda session: GateClient(
                self._launcher, f"gate-{session[:8]}", _GATE_SECONDS
            ),
            isolation=facts,
        )


def _open_desk(
    state: Path,
    loaded: LoadedPlan,
    launcher: LauncherClient,
    attester: Attester,
    opener: _SessionOpener,
) -> PlanDesk:
    archive = PlanArchive(state, loaded.plan.digest)
    archive.spent_runs()  # an unreadable ledger refuses the start
    stores = {
        artifact: open_upload_store(state / "uploads", loaded.plan, artifact)
        for artifact in ARTIFACTS
    }
    around = Surroundings(
        launcher=launcher,
        attester=attester,
        archive=archive,
        stores=stores,
        now=lambda: datetime.now(UTC),
        separate_users=opener.separate,
        threads=os.cpu_count() or 1,
    )
    return PlanDesk(loaded, around, opener.open(loaded))


def _read_roots(path: Path | None) -> Any:
    if path is None:
        return parse_trust_roots()
    with path.open("rb") as file:
        return parse_trust_roots(simulated=file.read(_MAX_ROOTS))


def _describe(error: Refusal | AttestationError) -> dict[str, Any]:
    return error.as_json()


def _announce(options: argparse.Namespace, fields: dict[str, Any], text: str) -> None:
    line = json.dumps(fields) if options.json else text
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
