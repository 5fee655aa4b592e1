"""Options that several commands share, one spelling each."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_EXISTING_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_DURATION = re.compile(r"([1-9][0-9]{0,5})([mhd])\Z")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class Moment(click.ParamType[datetime]):
    """A UTC time `YYYY-MM-DDTHH:MM:SSZ`, or a span from now such as `12h` or `7d`."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Read the time."""
        if isinstance(value, datetime):
            return value
        span = _DURATION.match(value)
        if span is not None:
            return datetime.now(UTC).replace(microsecond=0) + timedelta(
                **{_UNITS[span[2]]: int(span[1])}
            )
        from enclave.core.errors import DocumentRefused
        from enclave.core.times import parse_time

        try:
            return parse_time(value)
        except DocumentRefused:
            self.fail(
                f"{value!r} is not YYYY-MM-DDTHH:MM:SSZ nor a span like 12h or 7d", param, ctx
            )


def state_option(command: F) -> F:
    """`--state DIR`."""
    return click.option(
        "--state",
        "state_path",
        type=click.Path(path_type=Path),
        envvar="DOUBLEBLIND_STATE",
        show_envvar=True,
        required=True,
        help="This party's state directory.",
    )(command)


def plan_option(command: F) -> F:
    """`--plan DIR`."""
    return click.option(
        "--plan",
        "plan_path",
        type=_EXISTING_FOLDER,
        envvar="DOUBLEBLIND_PLAN",
        show_envvar=True,
        required=True,
        help="The plan's directory (plan.json and documents/).",
    )(command)


def endpoint_option(*, required: bool) -> Callable[[F], F]:
    """`--endpoint HOST:PORT`."""
    return click.option(
        "--endpoint",
        envvar="DOUBLEBLIND_ENDPOINT",
        show_envvar=True,
        required=required,
        help="The enclave's address, host:port.",
    )


def roots_option(command: F) -> F:
    """`--roots FILE`."""
    return click.option(
        "--roots",
        "roots_path",
        type=_EXISTING_FILE,
        envvar="DOUBLEBLIND_ROOTS",
        show_envvar=True,
        help="Trust roots (PEM) that evidence must chain to.",
    )(command)


def policy_pin_option(command: F) -> F:
    """`--policy FILE`: this party's own copy of the attestation policy."""
    return click.option(
        "--policy",
        "policy_path",
        type=_EXISTING_FILE,
        help="Your own attestation policy; a plan that names another one is refused.",
    )(command)


def json_option(command: F) -> F:
    """`--json`."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object on the last line."
    )(command)


def yes_option(command: F) -> F:
    """`--yes`."""
    return click.option("--yes", is_flag=True, help="Do not ask; you have read the plan.")(command)
