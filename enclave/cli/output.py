"""What a command prints: people get text, `--json` gets one object on the last line of stdout.

Progress and warnings go to stderr, colour only to a terminal (NO_COLOR respected).
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from enclave.cli.untrusted import printable

Advance = Callable[[int, int], None]


class Output:
    """The two streams of one command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._out = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self._err = Console(file=sys.stderr, highlight=False, soft_wrap=True)

    def say(self, text: str = "", *, style: str = "") -> None:
        """A line for people; `--json` drops it."""
        if not self.as_json:
            self._out.print(Text(text, style=style))

    def heading(self, text: str) -> None:
        """A line that begins a section."""
        if not self.as_json:
            self._out.print()
            self._out.print(Text(text, style="bold"))

    def bullet(self, text: str, *, style: str = "") -> None:
        """One line of a section, wrapped to the terminal with a hanging indent."""
        if self.as_json:
            return
        width = self._out.width if self._out.is_terminal else 10_000
        wrapped = textwrap.fill(text, max(40, width), initial_indent="  ", subsequent_indent="    ")
        self._out.print(Text(wrapped, style=style))

    def done(self, text: str) -> None:
        """A line that reports a finished step."""
        if not self.as_json:
            self._out.print(Text.assemble(("✓ ", "green"), text))

    def failed(self, text: str) -> None:
        """A line that reports what does not hold."""
        if not self.as_json:
            self._out.print(Text.assemble(("✗ ", "red bold"), text))

    def facts(self, rows: Sequence[tuple[str, str]]) -> None:
        """Names and values in two columns."""
        if self.as_json:
            return
        width = max((len(name) for name, _ in rows), default=0)
        for name, value in rows:
            line = Text.assemble(("  " + name.ljust(width + 2), "dim"), printable(value))
            self._out.print(line)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
        """A plain table."""
        if self.as_json:
            return
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
        for column in columns:
            table.add_column(column)
        for row in rows:
            # Text, not str: what the other side wrote is never read as markup.
            table.add_row(*(c if isinstance(c, Text) else Text(printable(c)) for c in row))
        wrapped = Console(
            file=sys.stdout, highlight=False, width=None if self._out.is_terminal else 120
        )
        wrapped.print(table)

    def next_step(self, text: str) -> None:
        """The command that comes next."""
        if not self.as_json:
            self._out.print(Text.assemble(("→ ", "cyan"), ("Next: ", "bold"), text))

    def warn(self, text: str) -> None:
        """A line on stderr, with `--json` too."""
        line = Text.assemble(("! ", "yellow bold"), (text, "yellow"))
        self._err.print(line, soft_wrap=not self._err.is_terminal)

    def alarm(self, title: str, text: str) -> None:
        """A warning that can not be overlooked, on stderr."""
        if self._err.is_terminal:
            wrapping = Console(file=sys.stderr, highlight=False)
            wrapping.print(Panel(escape(text), title=escape(title), border_style="red bold"))
        else:
            self._err.print(Text(f"!!! {title}: {text}"))

    def result(self, value: Mapping[str, Any]) -> None:
        """The command's result: the last line of stdout with `--json`."""
        if self.as_json:
            sys.stdout.write(json.dumps(value, sort_keys=True) + "\n")
            sys.stdout.flush()

    @property
    def draws_bars(self) -> bool:
        """Whether stderr is a terminal that shows bars."""
        return self._err.is_terminal and not self.as_json

    @contextmanager
    def stage_bars(self) -> Iterator[Callable[[str, int, int], None]]:
        """A bar a stage of a run."""
        from enclave.cli.progress import open_stage_bars

        with open_stage_bars(self._err) as report:
            yield report

    @contextmanager
    def progress(self, title: str, *, unit: str = "bytes") -> Iterator[Advance]:
        """A bar on stderr for long work; only on a terminal, never with `--json`."""
        if not self.draws_bars:
            yield lambda _done, _total: None
            return
        from enclave.cli.progress import open_bar

        with open_bar(self._err, title, unit=unit) as advance:
            yield advance
