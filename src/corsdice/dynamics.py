"""A learned model of one step, and what it imagines of a policy (fitted by `ope.dynamics`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from corsdice.extraction import Basis, features
from corsdice.networks import MLP

WIDTHS, OUTCOME_WIDTHS = (128, 128), (64, 64)
LOG_DEVIATIONS = (-6.0, 2.0)
STRANGE = 0.01
"""The share of logged states that count as strange themselves."""

Act = Callable[[jax.Array, jax.Array], jax.Array]
"""Observations [n, O] and a key -> actions [n, A], in standard units: a policy where the logs have not been."""


@jax.tree_util.register_static
@dataclass(frozen=True)
class Scales:
    """In which the network speaks."""

    change: tuple[float, ...]
    """[O] of the changes of an observation in one step"""
    reward_shift: float
    reward: float
    largest_cost: float
    cost_logit: float
    """Of the logs' mean, from which the network departs, as `end_logit`: what never happened is not imagined."""
    end_logit: float

    @property
    def network(self) -> MLP:
        """Of (s,a): the change, its deviation, and the end."""
        return MLP(WIDTHS, 2 * len(self.change) + 1)

    @property
    def outcome_network(self) -> MLP:
        """Of (s,a,s'): reward and cost."""
        return MLP(OUTCOME_WIDTHS, 2)


class Prediction(NamedTuple):
    """Of rows; in the scales."""

    change: jax.Array
    """[n, O] mean of the change of the observation"""
    log_deviation: jax.Array
    """[n, O]"""
    end: jax.Array
    """[n] logit of a termination"""


class Outcome(NamedTuple):
    """Of transitions; in the scales.

    What is paid for is often where one arrives: told by s' as well, reward and cost are sharp functions, where the
    mean over all s' that may follow would be blurred.
    """

    reward: jax.Array
    """[n]"""
    cost: jax.Array
    """[n] logit of the cost as a part of the largest logged: a cost that jumps is seen sharply, and none is below 0"""


def predict(scales: Scales, params: Any, pairs: jax.Array) -> Prediction:
    size = len(scales.change)
    output = scales.network.apply(params["step"], pairs)
    deviations = jnp.clip(output[:, size : 2 * size], *LOG_DEVIATIONS)
    return Prediction(output[:, :size], deviations, output[:, -1] + scales.end_logit)


def predict_outcome(scales: Scales, params: Any, pairs: jax.Array, change: jax.Array) -> Outcome:
    """With s' by its change from s, in the scales."""
    reward, cost = scales.outcome_network.apply(params["outcome"], jnp.concatenate([pairs, change], -1)).T
    return Outcome(reward, cost + scales.cost_logit)


class Model(NamedTuple):
    """p(s', end | s, a), reward and cost of a transition, and what logged states are like."""

    scales: Scales
    params: Any
    noise: jax.Array
    """[n, O] of logged rows, in deviations"""
    low: jax.Array
    """[O] how far an imagined state may go, as `high`"""
    high: jax.Array
    states: Basis
    """Features whose squared length tells how unusual a state is"""
    usual: jax.Array
    """All but STRANGE of the logged states are less unusual"""


class Step(NamedTuple):
    observations: jax.Array
    actions: jax.Array
    next_observations: jax.Array
    next_actions: jax.Array
    values: jax.Array
    """[n, 2] rewards and costs, raw"""
    ended: jax.Array
    """[n] bool: terminations"""


def take_step(model: Model, act: Act, observations: jax.Array, actions: jax.Array, key: jax.Array) -> Step:
    act_key, step_key = jax.random.split(key)
    following, values, ended = respond(model, observations, actions, step_key)
    return Step(observations, actions, following, act(following, act_key), values, ended)


@jax.jit
def respond(
    model: Model, observations: jax.Array, actions: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Next observations, (rewards, costs) and terminations.

    The noise is a logged row's, all columns together: a push that moves a speed moves the place with it, and noise
    drawn for each column alone would cut how far it carries by half.
    """
    noise_key, end_key = jax.random.split(key)
    scales = model.scales
    pairs = jnp.concatenate([observations, actions], -1)
    told = predict(scales, model.params, pairs)
    drawn = model.noise[jax.random.randint(noise_key, (len(observations),), 0, len(model.noise))]
    change = told.change + jnp.exp(told.log_deviation) * drawn
    following = jnp.clip(observations + jnp.array(scales.change) * change, model.low, model.high)
    outcome = predict_outcome(scales, model.params, pairs, change)
    rewards = outcome.reward * scales.reward + scales.reward_shift
    costs = jax.nn.sigmoid(outcome.cost) * scales.largest_cost
    ended = jax.random.uniform(end_key, told.end.shape) < jax.nn.sigmoid(told.end)
    return following, jnp.stack([rewards, costs], -1), ended


_Now = tuple[jax.Array, jax.Array, jax.Array]


def imagine(model: Model, act: Act, starts: jax.Array, steps: int, key: jax.Array) -> tuple[Step, jax.Array]:
    """Episodes of a policy that can be compiled: [steps, episodes, ...], and which steps come before the end."""

    def forward(now: _Now, t: jax.Array) -> tuple[_Now, tuple[Step, jax.Array]]:
        observations, actions, going = now
        step = take_step(model, act, observations, actions, jax.random.fold_in(key, t))
        return (step.next_observations, step.next_actions, going & ~step.ended), (step, going)

    first = starts, act(starts, jax.random.fold_in(key, steps)), jnp.ones(len(starts), bool)
    return jax.lax.scan(forward, first, jnp.arange(steps))[1]


@jax.jit
def are_strange(model: Model, observations: jax.Array) -> jax.Array:
    """[n] bool: stranger than all but one in a hundred of the logged states."""
    return unusual(model.states, observations) > model.usual


def unusual(states: Basis, observations: jax.Array) -> jax.Array:
    """[n] the squared distance from the logs' mean in whitened features, the leverage of a regression."""
    return (features(states, observations) ** 2).mean(-1)
