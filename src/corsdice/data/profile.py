"""What a dataset holds, for a person to look at before anything is learned from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from corsdice.data.dataset import Dataset

QUANTILES = {"least": 0.0, "lower quarter": 0.25, "median": 0.5, "upper quarter": 0.75, "most": 1.0}


@dataclass(frozen=True)
class Profile:
    transitions: int
    episodes: int
    terminated: int
    """Episodes that ended because the process was over; the others timed out."""
    observation_shape: tuple[int, ...]
    action_shape: tuple[int, ...]
    action_range: tuple[float, float]
    length: dict[str, float]
    """Steps an episode, by quantile."""
    episode_return: dict[str, float]
    """Undiscounted, by quantile."""
    episode_cost: dict[str, float]
    """Undiscounted, by quantile."""
    safe_share: dict[str, float]
    """Share of episodes whose undiscounted cost is within each limit."""
    costly_steps: float
    """Share of steps with a cost above zero."""
    duplicates: int
    """Rows whose observation and action stand in an earlier row too."""
    constant_observations: tuple[int, ...]
    """Observation columns (flattened) that never change: they carry no information."""
    constant_actions: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def profile(dataset: Dataset, limits: Sequence[float] = ()) -> Profile:
    episodes = dataset.episodes
    costs = episodes.sums(dataset.costs)
    return Profile(
        transitions=dataset.transitions,
        episodes=len(episodes.starts),
        terminated=int(dataset.terminals.sum()),
        observation_shape=dataset.observations.shape[1:],
        action_shape=dataset.actions.shape[1:],
        action_range=(float(dataset.actions.min()), float(dataset.actions.max())),
        length=_quantiles(episodes.lengths),
        episode_return=_quantiles(episodes.sums(dataset.rewards)),
        episode_cost=_quantiles(costs),
        safe_share={f"{limit:g}": float((costs <= limit).mean()) for limit in limits},
        costly_steps=float((dataset.costs > 0).mean()),
        duplicates=_duplicates(dataset),
        constant_observations=_constant(dataset.observations),
        constant_actions=_constant(dataset.actions),
    )


def _quantiles(values: np.ndarray) -> dict[str, float]:
    return dict(zip(QUANTILES, (float(q) for q in np.quantile(values, list(QUANTILES.values()))), strict=True))


def _constant(array: np.ndarray) -> tuple[int, ...]:
    flat = array.reshape(len(array), -1)
    return tuple(int(i) for i in np.flatnonzero(flat.min(0) == flat.max(0)))


def _duplicates(dataset: Dataset) -> int:
    """By a 64-bit hash of each row: a column at a time, so that no copy of the data is made."""
    hashes = np.zeros(dataset.transitions, np.uint64)
    multipliers = np.random.default_rng(0)
    for array in (dataset.observations, dataset.actions):
        for column in array.reshape(len(array), -1).T:
            bits = np.ascontiguousarray(column + 0.0).view(np.uint32)  # -0.0 becomes 0.0
            odd = np.uint64(2 * int(multipliers.integers(2**63)) + 1)
            hashes = (hashes ^ (hashes >> np.uint64(29))) * odd + bits
    return dataset.transitions - len(np.unique(hashes))
