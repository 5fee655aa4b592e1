"""The verbs that owner and evaluator share, as commands of either group."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from enclave.cli.connection_options import connection_options
from enclave.cli.options import (
    Moment,
    endpoint_option,
    json_option,
    plan_option,
    policy_pin_option,
    roots_option,
    state_option,
    yes_option,
)

if TYPE_CHECKING:
    from enclave.cli.connecting import Connection

_RUN_OPTION = click.option(
    "--run", "run_number", type=click.IntRange(min=1), help="Which run; the last one otherwise."
)


def add_shared_verbs(group: click.Group, role: str) -> None:
    """Add approve, upload, evidence, grant, status and result for one role."""
    for make in (_approve, _upload, _evidence, _grant, _status, _result):
        group.add_command(make(role))


def _approve(role: str) -> click.Command:
    @click.command("approve")
    @plan_option
    @state_option
    @click.option(
        "--bundle",
        "bundle_path",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="The eval code you hold: refused unless the plan runs exactly this.",
    )
    @click.option("--max-runs", type=click.IntRange(min=1), help="Allow fewer runs than the plan.")
    @click.option("--not-after", type=Moment(), help="Allow runs for a shorter time (12h, 7d).")
    @endpoint_option(required=False)
    @roots_option
    @policy_pin_option
    @yes_option
    @json_option
    def approve(**options: Any) -> None:
        """Read the plan, sign it, and send the approval (with --endpoint)."""
        from enclave.cli.approve import approve_command

        approve_command(role, **options)

    return approve


def _upload(role: str) -> click.Command:
    @click.command("upload")
    @connection_options
    @state_option
    @json_option
    def upload(connection: Connection, state_path: Path, as_json: bool) -> None:
        """Upload the sealed artifacts; what is already there is not sent again."""
        from enclave.cli.upload import upload_command

        upload_command(role, connection, state_path, as_json=as_json)

    return upload


def _evidence(role: str) -> click.Command:
    @click.command("evidence")
    @connection_options
    @state_option
    @json_option
    def evidence(connection: Connection, state_path: Path, as_json: bool) -> None:
        """Show your own hardware's evidence, where the plan asks for it."""
        from enclave.cli.evidence import evidence_command

        evidence_command(role, connection, state_path, as_json=as_json)

    return evidence


def _grant(role: str) -> click.Command:
    @click.command("grant")
    @connection_options
    @state_option
    @json_option
    def grant(connection: Connection, state_path: Path, as_json: bool) -> None:
        """Grant the artifact keys to the attested enclave, for one run."""
        from enclave.cli.grant import grant_command

        grant_command(role, connection, state_path, as_json=as_json)

    return grant


def _status(role: str) -> click.Command:
    @click.command("status")
    @plan_option
    @endpoint_option(required=False)
    @state_option
    @json_option
    def status(plan_path: Path, endpoint: str | None, state_path: Path, as_json: bool) -> None:
        """Show what is done, what is missing, whose turn it is and the next command."""
        from enclave.cli.status import status_command

        status_command(role, plan_path, endpoint, state_path, as_json=as_json)

    return status


def _result(role: str) -> click.Command:
    @click.command("result")
    @connection_options
    @state_option
    @_RUN_OPTION
    @json_option
    def result(
        connection: Connection, state_path: Path, run_number: int | None, as_json: bool
    ) -> None:
        """Fetch, open and check this party's views and the receipt."""
        from enclave.cli.result import result_command

        result_command(role, connection, state_path, run_number, as_json=as_json)

    return result
