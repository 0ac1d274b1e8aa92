"""The Dataset: transitions in the order they happened, one row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from corsdice.errors import UserError


class Episodes(NamedTuple):
    """Where each episode lies: rows start to stop - 1."""

    starts: np.ndarray
    stops: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return self.stops - self.starts

    def sums(self, values: np.ndarray) -> np.ndarray:
        """The sum of values [N] over each episode, in float64."""
        return np.add.reduceat(values, self.starts, dtype=np.float64)


class Dataset(NamedTuple):
    """Logged transitions. A tuple of arrays, so JAX takes it as a pytree; `dataset_from` makes it from raw arrays.

    An episode ends with a termination (the process is over: nothing follows) or with a timeout (the observation is
    over: the process would have gone on). They are never the same thing, and never both.
    """

    observations: np.ndarray
    """[N, ...] float32"""
    actions: np.ndarray
    """[N, ...] float32"""
    rewards: np.ndarray
    """[N] float32"""
    costs: np.ndarray
    """[N] float32"""
    next_observations: np.ndarray
    """[N, ...] float32; what follows, also at a timeout; unused at a termination."""
    terminals: np.ndarray
    """[N] bool"""
    timeouts: np.ndarray
    """[N] bool"""

    @property
    def transitions(self) -> int:
        return len(self.rewards)

    @property
    def ends(self) -> np.ndarray:
        """[N] whether a row is the last of its episode."""
        return self.terminals | self.timeouts

    @property
    def episodes(self) -> Episodes:
        stops = np.flatnonzero(self.ends) + 1
        return Episodes(np.concatenate([[0], stops[:-1]]), stops)

    @property
    def initial_observations(self) -> np.ndarray:
        """[episodes, ...] the first observation of each episode."""
        return self.observations[self.episodes.starts]


REQUIRED = ("observations", "actions", "rewards", "costs", "terminals", "timeouts")
SCALARS = ("rewards", "costs", "terminals", "timeouts")


def dataset_from(arrays: Mapping[str, np.ndarray], needs_cost: bool = True) -> Dataset:
    """A Dataset from raw arrays by name: shapes and types made uniform, nothing else judged (that is `check`'s work).

    `next_observations` may be missing; then it is the observation of the next row, and the last row of an episode that
    timed out, whose successor nobody recorded, is left out. A last episode without an end is taken as timed out.
    `costs` may be missing only where no cost is needed; then all are zero.
    """
    if not needs_cost and "costs" not in arrays and "rewards" in arrays:
        arrays = {**arrays, "costs": np.zeros(len(arrays["rewards"]), np.float32)}
    missing = [name for name in REQUIRED if name not in arrays]
    if missing:
        raise UserError(
            f"missing {', '.join(missing)}: a dataset needs {', '.join(REQUIRED)}; found {', '.join(sorted(arrays))}"
        )
    length = len(arrays["rewards"])
    for name in (*REQUIRED, "next_observations"):
        if name in arrays and len(arrays[name]) != length:
            raise UserError(f"{name} has {len(arrays[name])} rows but rewards has {length}: all must have the same")
    if length == 0:
        raise UserError("the dataset has no rows")
    plain = {name: _plain(name, arrays[name]) for name in (*REQUIRED, "next_observations") if name in arrays}
    plain["timeouts"] &= ~plain["terminals"]  # at the last step of the horizon a termination is still a termination
    plain["timeouts"][-1] |= not plain["terminals"][-1]
    if "next_observations" not in plain:
        plain = _with_next_observations(plain)
    if plain["next_observations"].shape != plain["observations"].shape:
        shapes = f"{plain['next_observations'].shape[1:]} and {plain['observations'].shape[1:]}"
        raise UserError(f"next_observations and observations have rows of shape {shapes}: they must be the same")
    return Dataset(**plain)


def _plain(name: str, array: np.ndarray) -> np.ndarray:
    """float32 rows, or for what is one number a row float32 or bool of shape [N]."""
    if array.dtype.kind not in "fiub":
        remedy = "store numbers, not Python objects or text"
        raise UserError(f"{name} holds {array.dtype} values: {remedy}")
    if name in SCALARS:
        if array.size != len(array):
            raise UserError(f"{name} has shape {array.shape}: it must hold one number a row")
        array = array.reshape(-1)
        if name in ("terminals", "timeouts"):
            wrong = np.flatnonzero((array != 0) & (array != 1))
            if wrong.size:
                raise UserError(f"{name}, row {wrong[0]}, is {array[wrong[0]]}: an end is marked by 0 or 1")
            return array.astype(bool)
    elif array.ndim == 1:
        array = array[:, None]
    return array.astype(np.float32, copy=False)


def _with_next_observations(plain: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    following = np.concatenate([plain["observations"][1:], plain["observations"][-1:]])
    unknown = plain["timeouts"]
    single = unknown & np.concatenate([[True], (unknown | plain["terminals"])[:-1]])
    if single.any():
        row = int(np.flatnonzero(single)[0])
        raise UserError(
            f"timeouts, row {row}: an episode of one step that timed out has no next observation; "
            "add next_observations or leave the row out"
        )
    # The row before a timeout becomes the last one that is known in full.
    timeouts = np.concatenate([unknown[1:], [False]])
    kept = ~unknown
    return {name: array[kept] for name, array in plain.items() if name != "timeouts"} | {
        "timeouts": timeouts[kept],
        "next_observations": following[kept],
    }


def concatenate(parts: Sequence[Dataset]) -> Dataset:
    return Dataset(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def select(dataset: Dataset, chosen: np.ndarray) -> Dataset:
    """The episodes with these numbers, in this order."""
    episodes = dataset.episodes
    rows = np.concatenate([np.arange(episodes.starts[i], episodes.stops[i]) for i in chosen])
    return Dataset(*(column[rows] for column in dataset))
