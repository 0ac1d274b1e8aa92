"""What the settings of an experiment are checked for; a mistake is told by the name of its option."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from corsdice.errors import UserError


def at_least(minimum: float, **values: float) -> None:
    for name, value in values.items():
        if not value >= minimum:
            raise UserError(f"--{name.replace('_', '-')} must be at least {minimum}, got {value}")


def positive(**values: tuple[float, ...]) -> None:
    for name, given in values.items():
        if not given or not all(0 < value < float("inf") for value in given):
            raise UserError(f"--{name.replace('_', '-')} must be positive numbers, got {given}")


def distinct(**values: tuple[str, ...]) -> None:
    for name, given in values.items():
        if not given:
            raise UserError(f"--{name.replace('_', '-')} must name at least one")
        if len(set(given)) < len(given):
            raise UserError(f"--{name.replace('_', '-')} names something twice: {', '.join(given)}")


def discount_below_one(discount: float) -> None:
    if not 0 <= discount < 1:
        raise UserError(f"--discount must be in [0, 1), got {discount}")


def task_files(
    entries: Iterable[str], tasks: Collection[str], canonical: Callable[[str], str] = str
) -> dict[str, Path]:
    """The file that each task=file of --data names; `canonical` is a task's name as `tasks` have it."""
    found = {}
    for entry in entries:
        task, _, file = entry.partition("=")
        if not file or canonical(task) not in tasks:
            raise UserError(f"--data takes task=file with one of --tasks, got {entry!r}")
        found[canonical(task)] = Path(file)
    return found
