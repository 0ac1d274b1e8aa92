"""Logs as every estimator sees them, and a policy as they see it: by what it would do in the logged states."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.algorithms.logs import Units, batch_of, standard_observations
from corsdice.data.dataset import Dataset, Episodes
from corsdice.dynamics import Act
from corsdice.errors import UserError
from corsdice.policy import Policy

MAX_ROWS = 100_000
"""Beyond it, episodes are drawn: what more rows would add is less than the features' own error."""


class Evidence(NamedTuple):
    """Logs that no policy asked about was trained on: an estimate on the training logs is flattered."""

    observations: jax.Array
    """[n, O] in standard units, as all but `values` are"""
    actions: jax.Array
    """[n, A]"""
    next_observations: jax.Array
    """[n, O]"""
    alive: jax.Array
    """[n] 0 where the process ended, 1 elsewhere and at timeouts: what a timeout cuts off goes on unseen"""
    values: np.ndarray
    """[2, n] raw rewards and costs"""
    initial_observations: jax.Array
    """[episodes, O]"""
    episodes: Episodes
    units: Units
    horizon: int
    discount: float

    @property
    def rows(self) -> int:
        return len(self.actions)

    @property
    def pairs(self) -> jax.Array:
        return jnp.concatenate([self.observations, self.actions], -1)

    def reachable(self, quantity: int, steps: float) -> tuple[float, float]:
        """The least and the most that a sum over so many steps can be."""
        values = self.values[quantity]
        return steps * min(float(values.min()), 0.0), steps * max(float(values.max()), 0.0)

    def episode_means(self, rows: np.ndarray) -> np.ndarray:
        """[episodes] sums over each episode, scaled so that their mean is the mean over the rows [n]."""
        return self.episodes.sums(np.asarray(rows)) * len(self.episodes.starts) / self.rows


class Question(NamedTuple):
    """What a policy would do: one action for each state, drawn once; in standard units."""

    next_actions: jax.Array
    """[n, A]"""
    initial_actions: jax.Array
    """[episodes, A]"""
    policy_correction: jax.Array | None = None
    """[n] w(a|s), for the estimators that begin with it"""
    act: Act | None = None
    """None: what it does elsewhere is not known"""


RawPolicy = Callable[[np.ndarray], np.ndarray]
"""Observations [n, ...] of the logs -> actions [n, ...]: any policy, written in anything."""


def evidence_of(dataset: Dataset, units: Units, horizon: int, discount: float, most: int = MAX_ROWS) -> Evidence:
    """All whole episodes, or as many at random, always the same, as have `most` rows."""
    dataset = _whole_episodes(dataset, most)
    batch = batch_of(dataset, units)
    return Evidence(
        jnp.asarray(batch.observations),
        jnp.asarray(batch.actions),
        jnp.asarray(batch.next_observations),
        jnp.asarray(1 - batch.terminals),
        np.stack([dataset.rewards, dataset.costs]),
        jnp.asarray(standard_observations(dataset.initial_observations, units)),
        dataset.episodes,
        units,
        horizon,
        discount,
    )


def ask(evidence: Evidence, policy: Policy, seed: int = 0, policy_correction: jax.Array | None = None) -> Question:
    """A trained policy's actions."""
    next_key, initial_key = jax.random.split(jax.random.key(seed))
    return Question(
        actions_of(evidence, policy, evidence.next_observations, next_key),
        actions_of(evidence, policy, evidence.initial_observations, initial_key),
        policy_correction,
        partial(actions_of, evidence, policy),
    )


def ask_function(
    evidence: Evidence,
    policy: RawPolicy,
    observation_shape: tuple[int, ...],
    policy_correction: jax.Array | None = None,
) -> Question:
    """The actions of any function of observations, in raw units and of the shapes that the logs have."""
    act, unused = standard_function(evidence, policy, observation_shape), jax.random.key(0)
    return Question(
        act(evidence.next_observations, unused), act(evidence.initial_observations, unused), policy_correction, act
    )


def standard_function(evidence: Evidence, policy: RawPolicy, observation_shape: tuple[int, ...]) -> Act:
    """A function of raw observations, in standard units."""
    units = evidence.units

    def act(observations: jax.Array, key: jax.Array) -> jax.Array:
        raw = np.asarray(observations) * units.observation_scale + units.observation_shift
        actions = np.asarray(policy(raw.reshape(len(raw), *observation_shape)), np.float32)
        width = evidence.actions.shape[1]
        rows = actions.reshape(len(raw), -1) if actions.shape[:1] == (len(raw),) else np.empty((0, 0))
        if rows.shape[1] != width or not np.isfinite(rows).all():
            raise UserError(f"the policy must give {width} finite numbers for each observation")
        return jnp.asarray((rows - units.action_shift) / units.action_scale)

    return act


def actions_of(evidence: Evidence, policy: Policy, observations: jax.Array, key: jax.Array) -> jax.Array:
    """One action for each of the observations, all in standard units."""
    units = evidence.units
    raw = observations * units.observation_scale + units.observation_shift
    return (_act(policy.act, policy.params, key, raw) - units.action_shift) / units.action_scale


_act = jax.jit(lambda act, params, key, rows: act(params, key, rows), static_argnums=0)


def _whole_episodes(dataset: Dataset, rows: int) -> Dataset:
    episodes = dataset.episodes
    order = np.random.default_rng(0).permutation(len(episodes.starts))
    kept = np.zeros(len(order), bool)
    kept[order[np.cumsum(episodes.lengths[order]) <= max(rows, episodes.lengths[order[0]])]] = True
    chosen = np.repeat(kept, episodes.lengths)
    return Dataset(*(column[chosen] for column in dataset))
