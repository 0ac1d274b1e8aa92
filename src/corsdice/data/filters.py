"""Fewer or other episodes of a dataset, as DSRL makes them (Liu et al. 2023). Whole ones, in their order, by a seed.

An episode is a point in the plane of its undiscounted cost and return; grids are laid over the points there are.
"""

from __future__ import annotations

import math

import numpy as np

from corsdice.data.dataset import Dataset, select
from corsdice.errors import UserError

FINEST = (60, 50)
"""Bins by cost and by return of DSRL's script that thins datasets, unless told otherwise."""


def thin(dataset: Dataset, episodes: int, max_cost: float = math.inf, seed: int = 0) -> Dataset:
    """At most so many episodes, spread evenly over cost and return, none above `max_cost`.

    The grid is the finest on which every cell that holds any can keep one; each keeps the same number at most.
    """
    if episodes < 1:
        raise UserError(f"thinning must leave at least 1 episode, got {episodes}")
    costs, returns = _points(dataset)
    cheap = _within(costs, max_cost)
    cells = finest_cells(costs[cheap], returns[cheap], episodes)
    sizes = np.bincount(cells)
    kept_by_most = [np.minimum(sizes, most).sum() for most in range(1, sizes.max() + 1)]
    most = int(np.searchsorted(kept_by_most, episodes, side="right"))
    return select(dataset, cheap[_at_most(cells, most, seed)])


def density(
    dataset: Dataset, bins: tuple[int, int] = (10, 50), most: int = 5, least: int = 2, seed: int = 0
) -> Dataset:
    """DSRL's density filter: a cell keeps at most `most` episodes, and none if it has no more than `least`."""
    if min(bins) < 1 or not 0 <= least <= most or most < 1:
        raise UserError(f"density needs bins >= 1 and most >= least, got {bins}, most {most}, least {least}")
    cells = _cells(*_points(dataset), bins)
    kept = _at_most(cells, most, seed)
    kept = kept[np.bincount(cells)[cells[kept]] > least]
    if not kept.size:
        grid = f"{bins[0]} x {bins[1]}"
        raise UserError(f"no cell of {grid} holds more than {least} episodes: there are too few for the density filter")
    return select(dataset, kept)


def outliers(
    dataset: Dataset,
    share: float,
    limit: float,
    max_cost: float | None = None,
    max_return: float | None = None,
    seed: int = 0,
) -> Dataset:
    """DSRL's outliers: a share of the episodes, at least 1, made falsely attractive.

    They are drawn among those of at least half of `max_cost` and half of `max_return`, by default the dataset's own
    largest. Their rewards become 1.5 times as much, their costs 0 but for so many ones as stay below the limit.
    """
    if not 0 < share <= 1:
        raise UserError(f"outliers are a share of the episodes above 0 and at most 1, got {share:g}")
    if not 0 < limit < math.inf:
        raise UserError(f"outliers seem to cost less than a limit, which must be above 0 and finite, got {limit:g}")
    costs, returns = _points(dataset)
    least_cost = (costs.max() if max_cost is None else max_cost) / 2
    least_return = (returns.max() if max_return is None else max_return) / 2
    dear = np.flatnonzero((costs >= least_cost) & (returns >= least_return))
    wanted = max(1, int(share * len(costs)))
    if len(dear) < wanted:
        raise UserError(
            f"{wanted} of {len(costs)} episodes should become outliers, but {len(dear)} have a cost >= {least_cost:g} "
            f"and a return >= {least_return:g}, half of the largest: choose a smaller share or another task's ranges"
        )
    generator = np.random.default_rng(seed)
    changed = dataset._replace(costs=dataset.costs.copy(), rewards=dataset.rewards.copy())
    episodes = dataset.episodes
    for i in generator.choice(dear, wanted, replace=False):
        rows = np.arange(episodes.starts[i], episodes.stops[i])
        ones = generator.integers(min(math.ceil(limit), len(rows) + 1))  # fewer than the limit, no more than steps
        changed.costs[rows] = 0
        changed.costs[generator.choice(rows, ones, replace=False)] = 1
        changed.rewards[rows] *= 1.5
    return changed


def safe(dataset: Dataset, limit: float) -> Dataset:
    """The episodes whose undiscounted cost is within the limit: what BC-Safe learns from."""
    costs, _ = _points(dataset)
    return select(dataset, _within(costs, limit))


def finest_cells(costs: np.ndarray, returns: np.ndarray, most: int) -> np.ndarray:
    """[episodes] the cell of each, numbered from 0, on DSRL's grid or the finest like it with `most` cells in use.

    Few episodes on a fine grid would have a cell each, and keeping some of them would be drawing blindly.
    """
    by_cost, by_return = FINEST
    sizes = sum(FINEST)  # so many that neither side loses more than one bin from one size to the next
    grids = ((math.ceil(by_cost * i / sizes), math.ceil(by_return * i / sizes)) for i in range(sizes, 0, -1))
    each = (_cells(costs, returns, bins) for bins in grids)
    return next(cells for cells in each if cells.max() < most)  # the last grid is a single cell


def _points(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    episodes = dataset.episodes
    return episodes.sums(dataset.costs), episodes.sums(dataset.rewards)


def _within(costs: np.ndarray, limit: float) -> np.ndarray:
    """The numbers of the episodes within the limit, of which there must be some."""
    numbers = np.flatnonzero(costs <= limit)
    if not numbers.size:
        raise UserError(f"no episode costs {limit:g} or less, the cheapest {costs.min():g}: choose a higher limit")
    return numbers


def _cells(costs: np.ndarray, returns: np.ndarray, bins: tuple[int, int]) -> np.ndarray:
    """[episodes] the cell of each; those in use are numbered from 0."""
    places = _places(costs, bins[0]) * bins[1] + _places(returns, bins[1])
    return np.unique(places, return_inverse=True)[1]


def _places(values: np.ndarray, bins: int) -> np.ndarray:
    """Which of so many equal parts of their range; the largest is in the last, not in one of its own as in DSRL."""
    width = np.ptp(values) or 1.0
    return np.minimum((values - values.min()) / width * bins, bins - 1).astype(int)


def _at_most(cells: np.ndarray, most: int, seed: int) -> np.ndarray:
    """The numbers of the episodes that stay, ascending, if each cell keeps so many at random."""
    shuffled = np.random.default_rng(seed).permutation(len(cells))
    by_cell = shuffled[np.argsort(cells[shuffled], kind="stable")]
    sizes = np.bincount(cells)
    rank = np.arange(len(cells)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(by_cell[rank < most])
