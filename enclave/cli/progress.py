"""Progress bars on stderr: one for bytes or counts, and one line a stage of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from enclave.cli.untrusted import printable


@contextmanager
def open_bar(console: Console, title: str, *, unit: str) -> Iterator[Callable[[int, int], None]]:
    """One bar; the function it gives takes (done, total)."""
    amounts: list[ProgressColumn] = (
        [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn()]
    )
    with Progress(
        TextColumn("{task.description}"), BarColumn(), *amounts, TimeElapsedColumn(),
        console=console,
    ) as bars:  # fmt: skip
        task = bars.add_task(title, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


@contextmanager
def open_stage_bars(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each stage that is reported; the function takes (stage, done, total)."""
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    ) as bars:
        tasks: dict[str, int] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                for name in tasks.values():
                    bars.stop_task(name)  # type: ignore[arg-type]
                tasks[stage] = bars.add_task(
                    printable(stage.replace("_", " ")), total=total or None
                )
            bars.update(tasks[stage], completed=done, total=total or None)  # type: ignore[arg-type]

        yield report
