"""`doubleblind run`: start the agreed run and watch it, counts and stages only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from enclave.cli.connection_options import connection_options
from enclave.cli.options import json_option, state_option

if TYPE_CHECKING:
    from enclave.cli.connecting import Connection
    from enclave.cli.output import Output
    from enclave.clients.party.session import PartySession

Report = Callable[[str, int, int], None]


@click.command()
@connection_options
@state_option
@click.option(
    "--watch", "watched", type=click.IntRange(min=1), help="Only watch this run; start none."
)
@json_option
def run(connection: Connection, state_path: Path, watched: int | None, as_json: bool) -> None:
    """Start the agreed run and watch it to its end.

    Either party may start it once both have approved, uploaded and granted.
    """
    from enclave.cli.connecting import COMMAND_GROUPS, connect, name_command
    from enclave.cli.output import Output
    from enclave.clients.party.keys import load_keys
    from enclave.clients.party.state import StateDirectory

    output = Output(as_json=as_json)
    keys = load_keys(StateDirectory(state_path))
    with connect(output, keys, connection) as session:
        number = session.client.start_run() if watched is None else watched
        output.done(f"Run {number} {'started' if watched is None else 'found'}")
        stages = _watch(output, session, number)
    output.done(f"Run {number} finished")
    if keys.party.role in COMMAND_GROUPS:
        output.next_step(name_command(keys.party.role, "result"))
    output.result({"run": number, "state": "finished", "stages": stages})


def _watch(output: Output, session: PartySession, number: int) -> dict[str, Any]:
    from enclave.core.errors import RunRefused, rebuild_refusal

    stages: dict[str, Any] = {}
    state = ""
    with _stage_reports(output) as report:
        for progress in session.client.watch_run(number):
            state = progress.state
            if progress.state == "refused":
                refusal = progress.refusal or {"stage": "run", "code": "run_refused"}
                raise rebuild_refusal(**refusal)
            if progress.state == "finished":
                break
            stages[progress.stage] = {"done": progress.done, "total": progress.total}
            report(progress.stage, progress.done, progress.total)
    if state != "finished":
        raise RunRefused(
            "run_watch_ended",
            expected="the run's end",
            got=state or "nothing",
            hint=f"watch it again: doubleblind run --watch {number}",
        )
    return stages


@contextmanager
def _stage_reports(output: Output) -> Iterator[Report]:
    """Bars on a terminal, otherwise one line on stderr for each new stage."""
    if output.draws_bars:
        with output.stage_bars() as report:
            yield report
        return
    from enclave.cli.untrusted import printable

    seen: set[str] = set()

    def say(stage: str, _done: int, total: int) -> None:
        if stage not in seen and not output.as_json:
            seen.add(stage)
            sys.stderr.write(
                f"  {printable(stage).replace('_', ' ')}{f' ({total})' if total else ''}\n"
            )
            sys.stderr.flush()

    yield say
