"""The options that say where the enclave is and what this party believes in, as one value."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from enclave.cli.options import endpoint_option, plan_option, policy_pin_option, roots_option


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--plan --endpoint --roots --policy`, passed on as `connection`."""

    @plan_option
    @endpoint_option(required=True)
    @roots_option
    @policy_pin_option
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        plan_path: Path,
        endpoint: str,
        roots_path: Path | None,
        policy_path: Path | None,
        **kwargs: Any,
    ) -> Any:
        from enclave.cli.connecting import Connection

        connection = Connection(plan_path, endpoint, roots_path, policy_path)
        return command(*args, connection=connection, **kwargs)

    return wrapped
