"""A command group that imports a command only when it is called.

`doubleblind --help` must not load grpc or torch, so each command is named by
its module and carries its one-line help here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click


@dataclass(frozen=True)
class LazyCommand:
    """A command's place: `module:attribute`, and the line the group's help shows."""

    target: str
    help: str

    def load(self) -> click.Command:
        """Import the command."""
        module, _, attribute = self.target.partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.target} is not a command")
        return command


class LazyGroup(click.Group):
    """A group whose commands are listed by section and loaded on use."""

    def __init__(
        self,
        *args: Any,
        sections: Sequence[tuple[str, Mapping[str, LazyCommand]]] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections
        self._lazy = {name: entry for _, entries in sections for name, entry in entries.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command's name, in the order the sections give."""
        return [*self._lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command."""
        entry = self._lazy.get(cmd_name)
        return entry.load() if entry is not None else super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Print the sections without loading a single command."""
        width = max(len(name) for name in self._lazy)
        for title, entries in self._sections:
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), e.help) for name, e in entries.items()])
