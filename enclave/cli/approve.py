"""`approve`: show the plan, check it, ask, sign, keep, send."""

from __future__ import annotations

import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from enclave.cli.connecting import Connection, connect, name_command, open_state, warn_if_simulated
from enclave.cli.output import Output
from enclave.cli.plan_text import print_plan
from enclave.clients.evaluator.suite import review_bundle
from enclave.clients.model_owner.model import review_code, review_engine
from enclave.clients.party.approving import approve_plan, review_plan
from enclave.clients.party.errors import ClientRefused
from enclave.clients.party.plan_directory import PlanDirectory, read_plan_directory
from enclave.clients.party.state import StateDirectory
from enclave.core.times import print_time
from enclave.core.vocabulary import MODEL_OWNER


def approve_command(
    role: str,
    *,
    plan_path: Path,
    state_path: Path,
    bundle_path: Path | None,
    max_runs: int | None,
    not_after: datetime | None,
    endpoint: str | None,
    roots_path: Path | None,
    policy_path: Path | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Approve a plan after everything this client can see of it was found right."""
    output = Output(as_json=as_json)
    state, keys = open_state(state_path, role)
    directory = read_plan_directory(plan_path)
    plan = directory.plan
    with state.locked():
        print_plan(output, directory)
        review_plan(state, keys, directory, now=datetime.now(UTC))
        _review_own_terms(role, state, directory)
        output.say()
        output.done("It names your keys and the artifacts that you sealed.")
        if bundle_path is not None:
            review_code(directory, bundle_path)
            output.done(f"It runs exactly the eval code in {bundle_path}.")
        elif role == MODEL_OWNER:
            output.warn(
                "The eval code was not compared: give --bundle DIR with the code you have read."
            )
        warn_if_simulated(output, directory)
        _confirm(plan.digest, yes=yes, as_json=as_json)
        approval = approve_plan(
            state,
            keys,
            directory,
            max_runs=plan.max_runs if max_runs is None else max_runs,
            not_after=plan.not_after if not_after is None else not_after,
            nonce=secrets.token_bytes(32),
            now=datetime.now(UTC),
        )
        output.done(
            f"Approved: at most {approval.max_runs} run(s), "
            f"not after {print_time(approval.not_after)}"
        )
        if endpoint is not None:
            connection = Connection(plan_path, endpoint, roots_path, policy_path)
            with connect(output, keys, connection, warned=True) as session:
                session.client.submit_approval(approval.envelope)
            output.done("The enclave has the approval.")
        output.next_step(
            name_command(role, "upload") + ("" if endpoint else " (sends the approval too)")
        )
    output.result(
        {
            "plan": plan.digest,
            "approval": approval.digest,
            "max_runs": approval.max_runs,
            "not_after": print_time(approval.not_after),
            "bundle_compared": bundle_path is not None,
            "submitted": endpoint is not None,
        }
    )


def _review_own_terms(role: str, state: StateDirectory, directory: PlanDirectory) -> None:
    if role == MODEL_OWNER:
        review_engine(state, directory)
    else:
        review_bundle(state, directory)


def _confirm(digest: str, *, yes: bool, as_json: bool) -> None:
    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise ClientRefused(
            "approval_not_confirmed",
            expected="a person who confirms, or --yes",
            hint="read the plan with `plan show`, then add --yes",
        )
    if not click.confirm(f"\nSign plan {digest[:16]}…?", default=False):
        raise ClientRefused(
            "approval_not_confirmed", expected="your consent", got="no; nothing was signed"
        )
