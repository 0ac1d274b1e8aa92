"""Progress and tables in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text


@contextmanager
def progress(total: int | None, unit: str) -> Iterator[Callable[..., None]]:
    """Yields `advance(what, pieces=1, total=None)`, to be called after some of `total` pieces.

    A total that is known only later is told then. The bar is shown only on a terminal.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        _Speed(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=total)
        yield lambda what, pieces=1, total=None: bar.update(task, advance=pieces, total=total, description=what)


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed and task.speed >= 10 else "")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=index == 0)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def print_claims(claims: Sequence[Mapping[str, Any]]) -> None:
    for claim in claims:
        print(f"{'holds' if claim['holds'] else 'FAILS'}: {claim['claim']} (worst {claim['worst']:.3g})")


def print_written(directory: Path, names: Sequence[str]) -> None:
    print("Wrote " + ", ".join(str(directory / name) for name in names))
