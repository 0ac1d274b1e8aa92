"""A learned model of one step, and what it imagines of a policy (fitted by `ope.dynamics`).

A step is told by the one before it as well: what logs do not show, such as how fast wheels turn, often shows there.
"""

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
        """Of (s,a) and the previous step: the change, its deviation, and the end.

        LayerNorm holds what it tells of places far from the logs, which else may drive imagined episodes ever farther.
        """
        return MLP(WIDTHS, 2 * len(self.change) + 1, layer_norm=True, smooth=True)

    @property
    def outcome_network(self) -> MLP:
        """Of (s,a,s'): reward and cost."""
        return MLP(OUTCOME_WIDTHS, 2)


class Linear(NamedTuple):
    """The best linear map from (s,a) and the previous step to the change, in the scales.

    Much of what bodies and stores do in one step is linear, and a network is never quite.
    """

    slope: jax.Array
    """[2 (O + A), O]"""
    shift: jax.Array
    """[O]"""
    better: jax.Array
    """[O] bool: columns that it tells better than the network, in rows that neither has seen"""


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


def predict(scales: Scales, params: Any, pairs: jax.Array, previous: jax.Array) -> Prediction:
    """With the previous step [n, O + A]: the change, in the scales, and the action; zeros where there was none."""
    told = predict_by_network(scales, params, pairs, previous)
    linear: Linear = params["linear"]
    straight = jnp.concatenate([pairs, previous], -1) @ linear.slope + linear.shift
    return told._replace(change=jnp.where(linear.better, straight, told.change))


def predict_by_network(scales: Scales, params: Any, pairs: jax.Array, previous: jax.Array) -> Prediction:
    """The same without the linear map."""
    size = len(scales.change)
    output = scales.network.apply(params["step"], jnp.concatenate([pairs, previous], -1))
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


class Now(NamedTuple):
    """Where episodes stand."""

    observations: jax.Array
    actions: jax.Array
    previous: jax.Array
    """[n, O + A] the change, in the scales, and the action of the previous step; zeros at the start"""


class Step(NamedTuple):
    now: Now
    following: Now
    values: jax.Array
    """[n, 2] rewards and costs, raw"""
    ended: jax.Array
    """[n] bool: terminations"""


def begin(act: Act, observations: jax.Array, key: jax.Array) -> Now:
    actions = act(observations, key)
    return Now(observations, actions, jnp.zeros((len(observations), observations.shape[1] + actions.shape[1])))


def take_step(model: Model, act: Act, now: Now, key: jax.Array) -> Step:
    act_key, step_key = jax.random.split(key)
    observations, previous, values, ended = respond(model, now, step_key)
    return Step(now, Now(observations, act(observations, act_key), previous), values, ended)


@jax.jit
def respond(model: Model, now: Now, key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Next observations, what is then the previous step, (rewards, costs) and terminations.

    The noise is a logged row's, all columns together: a push that moves a speed moves the place with it, and noise
    drawn for each column alone would cut how far it carries by half.
    """
    noise_key, end_key = jax.random.split(key)
    scales = model.scales
    pairs = jnp.concatenate([now.observations, now.actions], -1)
    told = predict(scales, model.params, pairs, now.previous)
    drawn = model.noise[jax.random.randint(noise_key, (len(pairs),), 0, len(model.noise))]
    change = told.change + jnp.exp(told.log_deviation) * drawn
    size = jnp.array(scales.change)
    following = jnp.clip(now.observations + size * change, model.low, model.high)
    outcome = predict_outcome(scales, model.params, pairs, change)
    rewards = outcome.reward * scales.reward + scales.reward_shift
    costs = jax.nn.sigmoid(outcome.cost) * scales.largest_cost
    ended = jax.random.uniform(end_key, told.end.shape) < jax.nn.sigmoid(told.end)
    previous = jnp.concatenate([(following - now.observations) / size, now.actions], -1)
    return following, previous, jnp.stack([rewards, costs], -1), ended


def imagine(model: Model, act: Act, starts: jax.Array, steps: int, key: jax.Array) -> tuple[Step, jax.Array]:
    """Episodes of a policy that can be compiled: [steps, episodes, ...], and which steps come before the end."""

    def forward(state: tuple[Now, jax.Array], t: jax.Array) -> tuple[tuple[Now, jax.Array], tuple[Step, jax.Array]]:
        now, going = state
        step = take_step(model, act, now, jax.random.fold_in(key, t))
        return (step.following, going & ~step.ended), (step, going)

    first = begin(act, starts, jax.random.fold_in(key, steps)), jnp.ones(len(starts), bool)
    return jax.lax.scan(forward, first, jnp.arange(steps))[1]


@jax.jit
def are_strange(model: Model, observations: jax.Array) -> jax.Array:
    """[n] bool: stranger than all but one in a hundred of the logged states."""
    return unusual(model.states, observations) > model.usual


def unusual(states: Basis, observations: jax.Array) -> jax.Array:
    """[n] the squared distance from the logs' mean in whitened features, the leverage of a regression."""
    return (features(states, observations) ** 2).mean(-1)
