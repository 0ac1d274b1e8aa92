"""Logs as the algorithms see them: on the device, in standard units, ready to be drawn from.

Standard units make one set of defaults fit every dataset and let α mean the same whatever the scale of the reward:
observations have mean 0 and deviation 1, actions lie in [-1, 1], rewards and costs have mean 0 and deviation 1-γ a
step, so that values, sums over 1/(1-γ) steps, are of the order of 1.
Shifting a reward by its mean m shifts every value by m/(1-γ), except after a termination, where the value of nothing
becomes -m/(1-γ): `penalised_rewards` accounts for it, so the shift changes no policy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.data.dataset import Dataset
from corsdice.dynamics import Model
from corsdice.extraction import Basis, features, fit_basis

PROBE_ROWS = 20_000
"""Enough for the closed form while learning; the final estimate takes all."""
ROWS_PER_WAVE = 30
"""Fewer rows than this for each random feature would fit noise."""
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


class Probe(NamedTuple):
    """Rows that no network is trained on, for estimates in closed form of the policy that ships."""

    basis: Basis
    """Features of (s, a), orthonormal under these rows."""
    here: jax.Array
    """[n, features] φ(s, a)"""
    values: jax.Array
    """[n, 2] raw rewards and costs"""
    next_observations: jax.Array
    terminals: jax.Array
    initial_observations: jax.Array


class Logs(NamedTuple):
    """Transitions sorted by the cost of their episode, so that the safe ones at any limit are the first rows."""

    transitions: Batch
    initial_observations: jax.Array
    units: Units
    probe: Probe
    episode: jax.Array
    """[horizon] ones: the time weights of an undiscounted episode."""
    highest_cost: jax.Array
    """Of one step, raw."""
    model: Model | None = None
    """Of one step, where it is to be believed."""
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
    return Units(
        observations.mean(0),
        _scale(observations.std(0)),
        (low + high) / 2,
        _scale((high - low) / 2),
        np.asarray(dataset.rewards.mean(dtype=np.float64), np.float32),
        _scale(dataset.rewards.std() / (1 - discount)),
        np.asarray(dataset.costs.mean(dtype=np.float64), np.float32),
        _scale(dataset.costs.std() / (1 - discount)),
    )


def raw_units(dataset: Dataset) -> Units:
    """Units that change nothing but the actions, which actors need in [-1, 1]."""
    zero, one = np.zeros((), np.float32), np.ones((), np.float32)
    width = _rows(dataset.observations).shape[1]
    zeros, ones = np.zeros(width, np.float32), np.ones(width, np.float32)
    standard = units_of(dataset, 0.0)
    return Units(zeros, ones, standard.action_shift, standard.action_scale, zero, one, zero, one)


def logs_of(dataset: Dataset, probe: Dataset, units: Units, horizon: int, waves: int) -> Logs:
    """Logs to learn from and logs to probe with, on the device, in the given units, with `waves` random features."""
    episodes = dataset.episodes
    order = np.argsort(np.repeat(episodes.sums(dataset.costs), episodes.lengths), kind="stable")
    batch = batch_of(dataset, units)
    return Logs(
        jax.tree.map(lambda column: jnp.asarray(column[order]), batch),
        jnp.asarray(standard_observations(dataset.initial_observations, units)),
        jax.tree.map(jnp.asarray, units),
        probe_of(probe, units, waves),
        jnp.ones(horizon),
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


def probe_of(dataset: Dataset, units: Units, waves: int) -> Probe:
    """The rows, or so many at random, with their features."""
    rows = np.sort(np.random.default_rng(0).permutation(dataset.transitions)[:PROBE_ROWS])
    batch = jax.tree.map(lambda column: column[rows], batch_of(dataset, units))
    pairs = np.concatenate([batch.observations, batch.actions], -1)
    basis = fit_basis(pairs, max(1, min(waves, len(rows) // ROWS_PER_WAVE)))
    return Probe(
        basis,
        features(basis, jnp.asarray(pairs)),
        jnp.stack([jnp.asarray(dataset.rewards[rows]), jnp.asarray(dataset.costs[rows])], -1),
        jnp.asarray(batch.next_observations),
        jnp.asarray(batch.terminals),
        jnp.asarray(standard_observations(dataset.initial_observations, units)),
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
