"""`status`: what is done, what is missing, whose turn it is, and the next command."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from enclave.cli.connecting import name_command, open_state
from enclave.cli.output import Output
from enclave.clients.channel.bootstrap import fetch_server_certificate
from enclave.clients.party.keys import PartyKeys
from enclave.clients.party.plan_directory import PlanDirectory, read_plan_directory
from enclave.clients.party.session import BOOTSTRAP_SECONDS, open_channel, refuse_foreign_plan
from enclave.clients.party.status import DONE, OPEN, Standing, find_standing
from enclave.wire.messages import SessionView

_MARKS = {DONE: Text("✓ done", style="green"), OPEN: Text("· open", style="yellow")}


def status_command(
    role: str, plan_path: Path, endpoint: str | None, state_path: Path, *, as_json: bool
) -> None:
    """Show where the evaluation stands."""
    output = Output(as_json=as_json)
    state, keys = open_state(state_path, role)
    directory = read_plan_directory(plan_path)
    refuse_foreign_plan(directory, keys.party)
    view = None if endpoint is None else _ask(keys, directory, endpoint)
    standing = find_standing(state, keys, directory, view)
    output.heading(f"{directory.plan.title}, plan {directory.plan.digest[:16]}…")
    output.table(
        ("step", "whose", "state", ""),
        [
            (
                step.name,
                step.role.replace("_", " ") or "either",
                _MARKS.get(step.state, Text("? unknown", style="dim")),
                step.detail,
            )
            for step in standing.steps
        ],
    )
    if view is not None:
        output.say("What the enclave says of itself is not attested here.", style="dim")
    command = _next_command(role, standing)
    output.say()
    output.next_step(command)
    output.result(
        {
            "plan": directory.plan.digest,
            "steps": [
                {"name": s.name, "role": s.role, "state": s.state, "detail": s.detail}
                for s in standing.steps
            ],
            "turn": standing.turn,
            "next": command,
            "session": None if view is None else {"state": view.state, "session": view.session},
        }
    )


def _ask(keys: PartyKeys, directory: PlanDirectory, endpoint: str) -> SessionView:
    certificate = fetch_server_certificate(endpoint, BOOTSTRAP_SECONDS)
    with open_channel(keys, directory, endpoint, certificate) as client:
        return client.get_session()


def _next_command(role: str, standing: Standing) -> str:
    if not standing.turn:
        return f"doubleblind {standing.next_verb}"
    if standing.turn == role:
        return name_command(role, standing.next_verb)
    whose = standing.turn.replace("_", " ")
    return f"wait for the {whose}: {name_command(standing.turn, standing.next_verb)}"
