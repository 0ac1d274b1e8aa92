"""A policy's return and cost of an episode by extraction in closed form, with an interval over episodes.

The estimate is Σ_t θ_t · E_D[x φ] (see `corsdice.extraction`). With v_t the value of the steps from t on in the same
features, v_t = E_D[x φ] + Mᵀ v_{t+1}, it is also v_0 · E[φ(s_0,a_0)]: correction and value are dual. Together they say
how each logged transition bears on the estimate, to first order:

    ψ = Σ_t w_t(s,a) (x + v_{t+1}(s',a') - v_t(s,a)),

whose sums over whole episodes, drawn again with replacement, give the interval. It holds what the choice of logs does,
and, by an ensemble of feature draws, what the choice of features does; what no feature can tell it does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.algorithms.logs import Probe, Units, probe_of
from corsdice.data.dataset import Dataset
from corsdice.extraction import features, flow_of
from corsdice.policy import Act, Policy, PolicyParams

WAVES = 512
BASES = 2
"""Draws of features whose estimates are averaged."""
MAX_ROWS = 50_000
RESAMPLES = 2_000
LEVEL = 0.95
CHECK_WAVES = 200


class Interval(NamedTuple):
    value: float
    low: float
    high: float


class Estimate(NamedTuple):
    """Undiscounted sums over an episode, estimated from logs, with what tells how far to trust them."""

    episode_return: Interval
    episode_cost: Interval
    effective_sample_size: float
    """(Σw)² / Σw², in episodes: how many the estimate in effect rests on."""
    effective_share: float
    """The same as a share of the rows."""
    mean_correction: float
    """E_D[w]; 1 without terminations, less by the share of time after them."""
    negative_share: float
    """Share of the corrections' mass that is below zero, which no true correction is."""
    flow_residual: float
    """By how much features that took no part in the solution miss the flow equations, in their deviations."""
    corrections: np.ndarray
    """[rows] w(s,a), the mean over the steps of an episode."""


class _Solution(NamedTuple):
    estimates: jax.Array
    """[2] return and cost"""
    row_influence: jax.Array
    """[2, rows]"""
    start_influence: jax.Array
    """[2, episodes]"""
    corrections: jax.Array
    last: jax.Array
    """[rows] the correction of the last step alone"""


@partial(jax.jit, static_argnames="act")
def _following(act: Act, params: PolicyParams, probe: Probe, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """φ(s',a') [rows, d], zero after a termination, and φ(s_0,a_0) [episodes, d], with actions of the policy."""
    units = params.units

    def of(observations: jax.Array, key: jax.Array) -> jax.Array:
        raw = observations * units.observation_scale + units.observation_shift
        actions = (act(params, key, raw) - units.action_shift) / units.action_scale
        return features(probe.basis, jnp.concatenate([observations, actions], -1))

    next_key, start_key = jax.random.split(key)
    then = of(probe.next_observations, next_key) * (1 - probe.terminals)[:, None]
    return then, of(probe.initial_observations, start_key)


@partial(jax.jit, static_argnames="horizon")
def _solve(here: jax.Array, then: jax.Array, start: jax.Array, values: jax.Array, horizon: int) -> _Solution:
    """From features [rows, d] and the rewards and costs [2, rows] of the rows."""
    flow = flow_of(here, then, start)

    def forward(theta: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return flow.transition @ theta, theta

    thetas = jax.lax.scan(forward, flow.initial, length=horizon)[1]
    occupancy = thetas.sum(0)
    means = values @ here / here.shape[0]

    def influence(x: jax.Array, mean: jax.Array) -> tuple[jax.Array, jax.Array]:
        def backward(value: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            return mean + flow.transition.T @ value, value

        first, after = jax.lax.scan(backward, jnp.zeros_like(mean), length=horizon)
        after = after[::-1]
        value = jnp.concatenate([first[None], after[:-1]])
        temporal = ((here @ (thetas.T @ after)) * then).sum(-1) - ((here @ (thetas.T @ value)) * here).sum(-1)
        return temporal + x * (here @ occupancy), start @ first

    rows, starts = jax.vmap(influence)(values, means)
    return _Solution(means @ occupancy, rows, starts, here @ occupancy / horizon, here @ thetas[-1])


def estimator(
    dataset: Dataset, units: Units, horizon: int, *, waves: int = WAVES, seed: int = 0
) -> Callable[[Policy], Estimate]:
    """A function that tells what an episode of `horizon` steps of a policy with these units would return and cost.

    The dataset is logs that no policy asked about was trained on: an estimate on the training logs is flattered.
    """
    dataset = _whole_episodes(dataset, MAX_ROWS)
    columns = np.stack([dataset.rewards, dataset.costs])
    values = jnp.asarray(columns)
    probes = [probe_of(dataset, units, waves, seed + base) for base in range(BASES)]
    check = probe_of(dataset, units, CHECK_WAVES, seed + BASES)
    count = len(dataset.episodes.starts)
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), RESAMPLES) / count

    def interval(solutions: Sequence[_Solution], quantity: int) -> Interval:
        values = [float(solution.estimates[quantity]) for solution in solutions]
        resampled = [
            value + draws @ _bearing(each, quantity, dataset) for value, each in zip(values, solutions, strict=True)
        ]
        low, high = np.quantile(np.concatenate(resampled), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        reachable = horizon * np.array([min(columns[quantity].min(), 0), max(columns[quantity].max(), 0)])
        return Interval(*(float(np.clip(number, *reachable)) for number in (np.mean(values), low, high)))

    def estimate(policy: Policy) -> Estimate:
        solutions = []
        for base, probe in enumerate(probes):
            then, start = _following(policy.act, policy.params, probe, jax.random.key(seed + base))
            solutions.append(jax.device_get(_solve(probe.here, then, start, values, horizon)))
        w = np.mean([solution.corrections for solution in solutions], 0)
        last = np.mean([solution.last for solution in solutions], 0)
        share = float(w.sum() ** 2 / (w**2).sum() / len(w))
        then, start = _following(policy.act, policy.params, check, jax.random.key(seed + BASES))
        return Estimate(
            interval(solutions, 0),
            interval(solutions, 1),
            effective_sample_size=share * count,
            effective_share=share,
            mean_correction=float(w.mean()),
            negative_share=float(-np.minimum(w, 0).sum() / np.abs(w).sum()),
            flow_residual=_flow_residual(check.here, then, start, w, last, horizon),
            corrections=w,
        )

    return estimate


def _bearing(solution: _Solution, quantity: int, dataset: Dataset) -> np.ndarray:
    """[episodes] how each episode bears on the estimate, with mean zero."""
    episodes = dataset.episodes
    sums = episodes.sums(np.asarray(solution.row_influence[quantity]))
    total = sums * len(sums) / dataset.transitions + solution.start_influence[quantity]
    return total - total.mean()


def _flow_residual(
    here: jax.Array, then: jax.Array, start: jax.Array, w: np.ndarray, last: np.ndarray, horizon: int
) -> float:
    """Root mean square over features of E[W φ] - φ_0 - E[(W - w_last) φ'], with W = horizon · w, a step."""
    total = horizon * w
    missed = total @ here / len(w) - start.mean(0) - (total - last) @ then / len(w)
    return float(jnp.sqrt((missed**2).mean()) / horizon)


def _whole_episodes(dataset: Dataset, rows: int) -> Dataset:
    """At most about `rows` rows: episodes at random, but always the same."""
    episodes = dataset.episodes
    order = np.random.default_rng(0).permutation(len(episodes.starts))
    kept = np.zeros(len(order), bool)
    kept[order[np.cumsum(episodes.lengths[order]) <= max(rows, episodes.lengths[order[0]])]] = True
    chosen = np.repeat(kept, episodes.lengths)
    return Dataset(*(column[chosen] for column in dataset))
