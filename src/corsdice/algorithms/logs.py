"""Logs as the algorithms see them: on the device, in standard units, ready to be drawn from.

Standard units make one set of defaults fit every dataset and let α mean the same whatever the scale of the reward:
observations have mean 0 and deviation 1, actions lie in [-1, 1], rewards and costs have mean 0 and a deviation of one
over the steps that values look ahead (`steps_ahead`), so that values are of the order of 1.
Shifting a reward by its mean m shifts every value by m/(1-γ), except after a termination, where the value of nothing
becomes -m/(1-γ): `penalised_rewards` accounts for it, so the shift changes no policy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.data.dataset import Dataset

CONSTANT = 1e-6
"""A column whose deviation is below this carries nothing and is left unscaled."""


class Units(NamedTuple):
    """What was taken off and divided by; x_standard = (x - shift) / scale."""

    observation_shift: np.ndarray
    observation_scale: np.ndarray
    action_shift: np.ndarray
    action_scale: np.ndarray
    reward_shift: np.ndarray
    reward_scale: np.ndarray
    cost_shift: np.ndarray
    cost_scale: np.ndarray


class Batch(NamedTuple):
    """Transitions in standard units, one a row."""

    observations: Any
    actions: Any
    rewards: Any
    costs: Any
    next_observations: Any
    terminals: Any
    """float: 1 where the process ended, 0 elsewhere and at timeouts."""


class Logs(NamedTuple):
    """Transitions sorted by the cost of their episode, so that the safe ones at any limit are the first rows."""

    transitions: Batch
    initial_observations: jax.Array
    units: Units
    highest_cost: jax.Array
    """Of one step, raw."""
    behaviour: Any = None
    """The parameters of a model of the logged actions, for `init` alone: states keep it."""

    @property
    def rows(self) -> int:
        return len(self.transitions.rewards)

    def raw_costs(self, batch: Batch) -> jax.Array:
        return batch.costs * self.units.cost_scale + self.units.cost_shift


def units_of(dataset: Dataset, discount: float) -> Units:
    """The standard units of a dataset."""
    observations, actions = _rows(dataset.observations), _rows(dataset.actions)
    low, high = actions.min(0), actions.max(0)
    ahead = steps_ahead(dataset, discount)
    return Units(
        observations.mean(0),
        _scale(observations.std(0)),
        (low + high) / 2,
        _scale((high - low) / 2),
        np.asarray(dataset.rewards.mean(dtype=np.float64), np.float32),
        _scale(dataset.rewards.std() * ahead),
        np.asarray(dataset.costs.mean(dtype=np.float64), np.float32),
        _scale(dataset.costs.std() * ahead),
    )


def steps_ahead(dataset: Dataset, discount: float) -> float:
    """Σ γ^t over what is left of an episode, in the mean over the rows: 1/(1-γ), or less where episodes end soon.

    A timeout ends nothing: the process would have gone on.
    """
    episodes = dataset.episodes
    left = np.repeat(episodes.stops, episodes.lengths) - np.arange(dataset.transitions)
    ended = np.repeat(dataset.terminals[episodes.stops - 1], episodes.lengths)
    return float(np.where(ended, 1 - discount**left, 1.0).mean() / (1 - discount))


def raw_units(dataset: Dataset) -> Units:
    """Units that change nothing but the actions, which actors need in [-1, 1]."""
    zero, one = np.zeros((), np.float32), np.ones((), np.float32)
    width = _rows(dataset.observations).shape[1]
    zeros, ones = np.zeros(width, np.float32), np.ones(width, np.float32)
    standard = units_of(dataset, 0.0)
    return Units(zeros, ones, standard.action_shift, standard.action_scale, zero, one, zero, one)


def logs_of(dataset: Dataset, units: Units) -> Logs:
    """Logs to learn from, on the device, in the given units."""
    episodes = dataset.episodes
    order = np.argsort(np.repeat(episodes.sums(dataset.costs), episodes.lengths), kind="stable")
    batch = batch_of(dataset, units)
    return Logs(
        jax.tree.map(lambda column: jnp.asarray(column[order]), batch),
        jnp.asarray(standard_observations(dataset.initial_observations, units)),
        jax.tree.map(jnp.asarray, units),
        jnp.float32(dataset.costs.max()),
    )


def batch_of(dataset: Dataset, units: Units) -> Batch:
    """All rows, in their order, in the given units."""
    return Batch(
        standard_observations(dataset.observations, units),
        (_rows(dataset.actions) - units.action_shift) / units.action_scale,
        (dataset.rewards - units.reward_shift) / units.reward_scale,
        (dataset.costs - units.cost_shift) / units.cost_scale,
        standard_observations(dataset.next_observations, units),
        dataset.terminals.astype(np.float32),
    )


def safe_rows(dataset: Dataset, episode_limit: float) -> int:
    """How many rows belong to episodes whose undiscounted cost is within the limit."""
    episodes = dataset.episodes
    return int(episodes.lengths[episodes.sums(dataset.costs) <= episode_limit].sum())


def draw_batch(logs: Logs, key: jax.Array, size: int, rows: jax.Array | int) -> Batch:
    """`size` transitions drawn with replacement from the first `rows`."""
    index = jax.random.randint(key, (size,), 0, rows)
    return jax.tree.map(lambda column: column[index], logs.transitions)


def draw_initial(logs: Logs, key: jax.Array, size: int) -> jax.Array:
    """`size` first observations of episodes, drawn with replacement."""
    index = jax.random.randint(key, (size,), 0, len(logs.initial_observations))
    return logs.initial_observations[index]


def penalised_rewards(units: Units, batch: Batch, multiplier: jax.Array, discount: jax.Array) -> jax.Array:
    """r - λc in standard units, plus the value of having ended where a transition ends the process.

    The value of nothing is 0 in raw units; measured from the mean of the penalised reward it is the negative of what
    that mean would have earned for ever.
    """
    shift = units.reward_shift / units.reward_scale - multiplier * units.cost_shift / units.cost_scale
    return batch.rewards - multiplier * batch.costs - batch.terminals * discount * shift / (1 - discount)


def standard_costs(units: Units, batch: Batch, discount: jax.Array) -> jax.Array:
    """c in standard units, with the value of having ended as in `penalised_rewards`."""
    return batch.costs - batch.terminals * discount * units.cost_shift / units.cost_scale / (1 - discount)


def standard_observations(rows: np.ndarray, units: Units) -> np.ndarray:
    return (_rows(rows) - units.observation_shift) / units.observation_scale


def _rows(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), -1)


def _scale(deviation: np.ndarray) -> np.ndarray:
    return np.where(deviation > CONSTANT, deviation, 1.0).astype(np.float32)
