"""The self-test: hostile attempts inside real compartments, before any secret is opened.

Feature detection is no evidence.  Each kind of compartment is started with
its real profile and runs the probes against canaries that anybody outside
could reach; one more shows that a tripwire hidden in a child ends the whole
compartment.  Anything unexpected is `sandbox_unavailable`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from enclave.core.canonical import digest_bytes, print_canonical
from enclave.core.errors import IsolationRefused, Refusal
from enclave.workload.frames import receive_frame
from enclave.workload.isolation.canaries import Canaries
from enclave.workload.isolation.inputs import InputFile, send_inputs
from enclave.workload.isolation.limits import GIB, MIB, Limits
from enclave.workload.isolation.network import take_listener
from enclave.workload.isolation.probes.probe import Targets
from enclave.workload.isolation.probes.registry import PROBES, probes_for
from enclave.workload.launcher.client import Compartment, CompartmentSpec, LauncherClient

PROBE_LIMITS: Final = Limits(
    wall_seconds=30,
    cpu_seconds=20,
    memory_bytes=2 * GIB,
    tmp_bytes=8 * MIB,
    file_bytes=12 * MIB,
    processes=24,
    open_files=64,
    bundle_bytes=MIB,
    suite_bytes=MIB,
)
"""Small limits, so that exhausting them is quick; the profile is the real one."""

_SECONDS: Final = 20.0
_TIER_HINTS: Final = {
    "own_uid": "start the workload as root: each compartment then has its own user",
    "landlock_abi_6": "boot Linux 6.12 or later",
}
HIDDEN_TRIPWIRE: Final = "hidden_tripwire"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One attempt: where it was made, what was expected and what came."""

    id: str
    kind: str
    name: str
    expected: str
    outcome: str

    def as_json(self) -> dict[str, str]:
        """One row of `doubleblind selftest --json`."""
        return {
            "id": self.id,
            "kind": self.kind,
            "name": self.name,
            "expected": self.expected,
            "outcome": self.outcome,
        }


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What is in force. `tier` is reached, `missing` says what a higher tier lacks.

    profile is the document whose digest a receipt carries.
    """

    tier: str
    missing: tuple[str, ...]
    profile_digest: str
    profile: Mapping[str, Any]
    probes: tuple[ProbeResult, ...]

    @property
    def tried(self) -> int:
        """How many attempts were made."""
        return len(self.probes)

    @property
    def refused(self) -> int:
        """How many of them were stopped (refused, killed or limited)."""
        return sum(1 for result in self.probes if result.outcome != "open")


def run_selftest(launcher: LauncherClient) -> SelfTest:
    """Probe every kind of compartment; IsolationRefused(`sandbox_unavailable`) on any surprise.

    Takes about a second.  Call before a key or an artifact is opened.
    """
    facts = launcher.describe()
    with Canaries(PROBE_LIMITS) as canaries:
        results = [
            *_whole_sandbox(launcher, canaries.targets),
            *_in_process(launcher, "model_host", canaries.targets),
            *_in_process(launcher, "gate", canaries.targets),
            _hidden_tripwire(launcher, canaries.targets),
        ]
        touched = canaries.touched()
    if touched:
        raise _unavailable("no canary touched", f"{touched} touched")
    demand_expected(results)
    profile = {**facts, "selftest": [result.as_json() for result in results]}
    return SelfTest(
        tier=facts["tier"],
        missing=tuple(facts["missing"]),
        profile_digest=digest_bytes(print_canonical(profile)),
        profile=profile,
        probes=tuple(results),
    )


def demand_tier(selftest: SelfTest, minimum: str) -> None:
    """Refused with `tier_too_low` when less is in force than the plan demands."""
    order = ("T1", "T2", "T3")
    if minimum not in order or order.index(selftest.tier) < order.index(minimum):
        raise IsolationRefused(
            "tier_too_low",
            expected=minimum,
            got=f"{selftest.tier}, without {', '.join(selftest.missing) or 'T3 layers'}",
            hint=_TIER_HINTS.get(next(iter(selftest.missing), ""), ""),
        )


def try_probes(
    launcher: LauncherClient,
    kind: str,
    identities: Sequence[str],
    targets: Targets,
    *,
    forked: bool,
    limits: Limits = PROBE_LIMITS,
) -> tuple[dict[str, str], Compartment]:
    """Run probes in one compartment with the profile of `kind`; outcomes by id, and how it ended.

    A probe that ends the compartment itself has no outcome.
    """
    settings = {"probes": list(identities), "forked": forked, "targets": targets.as_json()}
    compartment = _start(launcher, "probe", kind, settings, limits)
    return read_outcomes(compartment), compartment


def _start(
    launcher: LauncherClient, variant: str, kind: str, settings: dict[str, Any], limits: Limits
) -> Compartment:
    spec = CompartmentSpec(variant, f"selftest-{kind}", limits, settings, probe=kind)
    compartment = launcher.start(spec)
    compartment.control.settimeout(_SECONDS)
    try:
        if kind == "sandbox":
            take_listener(compartment.control).close()
            read, write = os.pipe()
            os.close(write)
            try:
                send_inputs(compartment.control, [InputFile("bundle", "task.py", 0, read)])
            finally:
                os.close(read)
        compartment.wait_sealed(_SECONDS)
    except Refusal:
        compartment.kill()
        # What stage two or the launcher said is the reason, not the broken socket.
        if compartment.refusal is not None:
            raise compartment.refusal from None
        raise
    return compartment


def read_outcomes(compartment: Compartment) -> dict[str, str]:
    """What a probe compartment told, until its end; closes its control socket."""
    outcomes: dict[str, str] = {}
    try:
        while True:
            message, _ = receive_frame(compartment.control)
            if message.get("event") != "probe":
                break
            outcomes[message["id"]] = message["outcome"]
    except Refusal:
        pass  # it ended; what is missing will be missed
    finally:
        compartment.close()
    compartment.wait(_SECONDS)
    return outcomes


def _whole_sandbox(launcher: LauncherClient, targets: Targets) -> list[ProbeResult]:
    probes = probes_for("sandbox")
    outcomes, compartment = try_probes(
        launcher, "sandbox", [probe.id for probe in probes], targets, forked=True
    )
    expected = sorted(p.call for p in probes if p.expected == "killed")
    if sorted(compartment.tripped) != expected:
        missed = sorted(set(expected) - set(compartment.tripped))
        raise _unavailable("the launcher hears of each tripwire", ", ".join(missed) or "others")
    return results_of("sandbox", [probe.id for probe in probes], outcomes)


def _in_process(launcher: LauncherClient, kind: str, targets: Targets) -> list[ProbeResult]:
    identities = [probe.id for probe in probes_for(kind, killing=False)]
    outcomes, _ = try_probes(launcher, kind, identities, targets, forked=False)
    return results_of(kind, identities, outcomes)


def _hidden_tripwire(launcher: LauncherClient, targets: Targets) -> ProbeResult:
    """A child trips; its parent would go on and say so. The production rule kills both."""
    settings = {"probes": ["ptrace"], "forked": True, "targets": targets.as_json()}
    compartment = _start(launcher, "probe_strict", "sandbox", settings, PROBE_LIMITS)
    told = read_outcomes(compartment)
    end = compartment.wait(_SECONDS)
    killed = not told and end.code == "tripwire" and end.tripwires == ("ptrace",)
    return ProbeResult(
        HIDDEN_TRIPWIRE,
        "sandbox",
        "a tripwire hidden in a child",
        "killed",
        "killed" if killed else "open",
    )


def results_of(
    kind: str, identities: Sequence[str], outcomes: Mapping[str, str]
) -> list[ProbeResult]:
    """One result for each probe that was to run: one that told nothing failed.

    A compartment that ended early (a starved machine, a wall limit) must not pass for one
    in which every attempt was stopped.
    """
    if not set(outcomes) <= set(identities):
        raise _unavailable("outcomes of the probes that were asked for", "others")
    return [
        ProbeResult(
            name, kind, PROBES[name].name, PROBES[name].expected, outcomes.get(name, "failed")
        )
        for name in identities
    ]


def demand_expected(results: Iterable[ProbeResult]) -> None:
    """Refused with `sandbox_unavailable` unless every probe ended as expected."""
    wrong = [
        f"{result.kind} {result.id} {result.outcome}"
        for result in results
        if result.outcome != result.expected
    ]
    if wrong:
        raise _unavailable("every probe stopped as expected", "; ".join(wrong)[:300])


def _unavailable(expected: str, got: str) -> IsolationRefused:
    return IsolationRefused(
        "sandbox_unavailable",
        expected=expected,
        got=got,
        hint="this machine can not confine a compartment; see docs/spec/isolation.md",
    )
