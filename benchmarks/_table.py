"""How every benchmark prints: a table, and with --json one JSON object on the last line."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table; the first column is text, the others are figures."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_show(value) for value in row))
    Console(width=110).print(table)


def print_json(figures: Mapping[str, object]) -> None:
    """The last line: one object, three digits after the point."""
    rounded = {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in figures.items()
    }
    print(json.dumps(rounded), flush=True)


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Median of the ratios of runs that took place next to each other."""
    return statistics.median(one / other for one, other in zip(above, below, strict=True))


def _show(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
