"""What every command that talks to an enclave does first."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from attestation.appraise import parse_policy
from attestation.parse.trust_roots import parse_trust_roots
from attestation.types import SIMULATED, AttestationResult, CheckState, TrustRoots
from enclave.cli.output import Output
from enclave.clients.party.errors import ClientRefused
from enclave.clients.party.keys import PartyKeys, load_keys
from enclave.clients.party.plan_directory import PlanDirectory, read_file, read_plan_directory
from enclave.clients.party.session import PartySession, open_party_session
from enclave.clients.party.state import StateDirectory
from enclave.core.vocabulary import EVALUATOR, MODEL_OWNER

_MAX_FILE_BYTES = 1024 * 1024

COMMAND_GROUPS = {MODEL_OWNER: "owner", EVALUATOR: "evaluator"}
"""Which command group is whose."""


@dataclass(frozen=True)
class Connection:
    """How a party reaches an enclave and what it believes in."""

    plan_path: Path
    endpoint: str
    roots_path: Path | None
    policy_path: Path | None


def open_state(state_path: Path, role: str) -> tuple[StateDirectory, PartyKeys]:
    """The state directory of a party in this role.

    Raises ClientRefused `state_other_role`.
    """
    state = StateDirectory(state_path)
    keys = load_keys(state)
    if keys.party.role != role:
        raise ClientRefused(
            "state_other_role",
            expected=f"the state directory of a {role.replace('_', ' ')}",
            got=keys.party.role.replace("_", " "),
            hint="check --state",
        )
    return state, keys


def read_optional(path: Path | None) -> bytes | None:
    """The bytes of a file, or None where no file was named."""
    return None if path is None else read_file(path, max_bytes=_MAX_FILE_BYTES)


def read_roots(path: Path | None) -> TrustRoots:
    """The trust roots this party brought; none means that simulated evidence has no root."""
    return parse_trust_roots(simulated=read_optional(path) or b"")


def warn_if_simulated(output: Output, directory: PlanDirectory) -> None:
    """Say loudly, each time, that a plan accepts evidence that proves nothing."""
    policy = parse_policy(directory.attestation_policy)
    if SIMULATED in policy.kinds:
        output.alarm(
            "SIMULATED ATTESTATION",
            f"The plan's policy ({policy.name}) accepts simulated evidence. It proves nothing "
            "about the machine: whoever runs it can read everything. For trials only.",
        )


@contextmanager
def connect(
    output: Output, keys: PartyKeys, connection: Connection, *, warned: bool = False
) -> Iterator[PartySession]:
    """A session with an enclave whose evidence was accepted, and a line that says so.

    `warned`: this command has warned of a policy that accepts simulated evidence already.
    """
    directory = read_plan_directory(connection.plan_path)
    if not warned:
        warn_if_simulated(output, directory)
    with open_party_session(
        keys,
        directory,
        connection.endpoint,
        roots=read_roots(connection.roots_path),
        policy_pin=read_optional(connection.policy_path),
        nonce=secrets.token_bytes(32),
        now=datetime.now(UTC),
    ) as session:
        _say_accepted(output, session.result)
        yield session


def _say_accepted(output: Output, result: AttestationResult) -> None:
    left_open = [c.name for c in result.checks if c.state is not CheckState.VERIFIED]
    verified = len(result.checks) - len(left_open)
    output.done(
        f"Enclave evidence ({', '.join(result.kinds)}) accepted under policy "
        f"{result.policy_name}: {verified} checks verified"
    )
    if left_open:
        output.say(f"  not checked: {', '.join(left_open)}", style="dim")


def evidence_summary(session: PartySession) -> dict[str, object]:
    """The appraisal as part of a command's JSON result."""
    result = session.result
    return {
        "policy": result.policy_name,
        "policy_digest": result.policy_digest,
        "kinds": list(result.kinds),
        "digest": result.evidence_digest,
        "session": session.inputs.session,
        "checks": {check.name: str(check.state) for check in result.checks},
    }


def name_command(role: str, verb: str) -> str:
    """The command line of a role's verb, without its options."""
    return f"doubleblind {COMMAND_GROUPS[role]} {verb}"
