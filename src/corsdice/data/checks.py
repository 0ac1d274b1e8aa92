"""What a dataset must satisfy before anything is learned from it; a refusal names the column, the row, the remedy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from corsdice.data.dataset import Dataset
from corsdice.errors import UserError

BLOCK = 65_536
"""Rows looked at together: temporary arrays stay small however large the dataset is."""
MISMATCH = 1e-4
"""How far next_observations may be from the following observation, relative to its size."""


def check(dataset: Dataset, action_bounds: tuple[float, float] | None = None, needs_cost: bool = True) -> Dataset:
    """The dataset itself, if nothing is wrong with it."""
    _finite(dataset)
    _costs(dataset, needs_cost)
    _ends(dataset)
    _continuity(dataset)
    if action_bounds is not None:
        _bounds(dataset, *action_bounds)
    return dataset


def _blocks(rows: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, rows)) for start in range(0, rows, BLOCK))


def _place(name: str, block: slice, wrong: np.ndarray) -> str:
    """`name, row i, column j` of the first wrong entry of a block."""
    index = np.argwhere(wrong)[0]
    row = f"{name}, row {block.start + index[0]}"
    return row + "".join(f", column {i}" for i in index[1:])


def _finite(dataset: Dataset) -> None:
    for name in ("observations", "actions", "rewards", "costs", "next_observations"):
        array = getattr(dataset, name)
        for block in _blocks(dataset.transitions):
            finite = np.isfinite(array[block])
            if not finite.all():
                place = _place(name, block, ~finite)
                raise UserError(f"{place}, is not a finite number: repair or leave out that episode")


def _costs(dataset: Dataset, needs_cost: bool) -> None:
    negative = np.flatnonzero(dataset.costs < 0)
    if negative.size:
        row = negative[0]
        raise UserError(f"costs, row {row}, is {dataset.costs[row]:g}: a cost must be >= 0 (a reward is not a cost)")
    if needs_cost and not dataset.costs.any():
        raise UserError("costs are all zero: there is nothing to constrain; check which column holds the cost")


def _ends(dataset: Dataset) -> None:
    if not dataset.terminals.any() and dataset.timeouts.sum() <= 1 and dataset.transitions > 1:
        raise UserError(
            "no row of terminals or timeouts marks the end of an episode: mark the last row of each, terminals where "
            "the process was over, timeouts where only the observation was"
        )


def _continuity(dataset: Dataset) -> None:
    inside = ~dataset.ends
    for block in _blocks(dataset.transitions - 1):
        following = dataset.observations[block.start + 1 : block.stop + 1]
        off = np.abs(dataset.next_observations[block] - following) > MISMATCH * (1 + np.abs(following))
        off &= inside[block].reshape(-1, *[1] * (off.ndim - 1))
        if off.any():
            place = _place("next_observations", block, off)
            raise UserError(
                f"{place}, is not the observation of the next row: rows must be in the order they happened, and the "
                "last of each episode must be marked in terminals or timeouts"
            )


def _bounds(dataset: Dataset, low: float, high: float) -> None:
    for block in _blocks(dataset.transitions):
        outside = (dataset.actions[block] < low) | (dataset.actions[block] > high)
        if outside.any():
            place = _place("actions", block, outside)
            value = dataset.actions[block][tuple(np.argwhere(outside)[0])]
            raise UserError(f"{place}, is {value:g}, outside [{low:g}, {high:g}]: state the true bounds or clip")
