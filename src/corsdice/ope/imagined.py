"""What policies return and cost in episodes that models of one step imagine, all models together.

Estimators on the logs must tell where a policy goes from rows that lie elsewhere, by functions that hold the policy
itself, which may be steep. What one step does is often far simpler, and then a model of it fills the gap. Where it is
not, as with legs that touch the ground, the models' errors may carry them away from all that was ever logged, or apart
from each other. Both are seen policy by policy: by the share of imagined states that are strange, and by the interval.
An error that all models share, among states like the logged ones, is seen by neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.actors import Conditional
from corsdice.algorithms.logs import Units
from corsdice.costs import LimitOn, discounted_steps
from corsdice.dynamics import Act, Model, are_strange, begin, imagine, take_step
from corsdice.ope.episodes import Episodes
from corsdice.ope.estimate import Sums, limited
from corsdice.ope.verdict import Verdict, judge
from corsdice.policy import Act as RawAct
from corsdice.policy import Policy, PolicyParams

IMAGINED_ROWS = 200_000
"""Of a policy that is judged, by all models together."""
FEWEST_EPISODES = 32
"""Imagined of each policy by each model."""
STEPS_A_LOOK = 10
"""Whether a state is strange is asked at one step of so many: it is dearer than the step itself."""


class Imagined(NamedTuple):
    """What all models together say of a policy."""

    episodes: Episodes
    strange: float
    """Share of imagined states that are stranger than all but one in a hundred of the logged ones."""

    @property
    def sums(self) -> Sums:
        return Sums(self.episodes.returned, self.episodes.cost)

    def judge(self, limit: float, limit_on: LimitOn = "mean") -> Verdict:
        return judge(limited(self.episodes.cost, self.episodes.risk, limit_on), self.strange, limit, limit_on)


class Ensemble(NamedTuple):
    """Models of one step, and first states from which all policies are imagined, by each model with the same noise."""

    models: Sequence[Model]
    starts: jax.Array
    """[episodes, O] in standard units, each logged one equally often"""
    logged: int
    """First states that differ."""
    weights: jax.Array
    """[steps] how much each step counts"""
    key: jax.Array

    def of_family(self, actor: Conditional, network: Any, conditions: jax.Array) -> list[Imagined]:
        """Of the policies that one network is under each of the conditions [k, ...]."""
        return self._together(
            lambda model, key: _episodes(_Under(actor), model, network, conditions, self.starts, self.weights, key)
        )

    def of_policy(self, policy: Policy, units: Units) -> Imagined:
        """Of a policy that may have been trained in other units than those of the models."""
        draw = _Standard(policy.act)
        alone = jnp.zeros((1, 0))
        return self._together(
            lambda model, key: _episodes(draw, model, (policy.params, units), alone, self.starts, self.weights, key)
        )[0]

    def of_function(self, act: Act) -> Imagined:
        """Of any function, which need not compile, and is asked by one model after another."""
        told = [_played(act, *each, self.starts, self.weights) for each in zip(self.models, self.keys, strict=True)]
        return self._imagined_by(told)[0]

    def discounted(self, discount: float) -> Ensemble:
        """The same for Σ_t γ^t x_t of the process that no time limit cuts off."""
        return self._replace(weights=discount ** jnp.arange(discounted_steps(discount)))

    @property
    def keys(self) -> list[jax.Array]:
        """Of each model, its noise for all policies."""
        return list(jax.random.split(self.key, len(self.models)))

    def _together(self, told_by: Callable[[Model, jax.Array], _Told]) -> list[Imagined]:
        with ThreadPoolExecutor(2) as beside:  # programs this small keep one core busy each
            return self._imagined_by(list(beside.map(told_by, self.models, self.keys)))

    def _imagined_by(self, models: Sequence[_Told]) -> list[Imagined]:
        told = jax.device_get(models)
        sums, strange = (np.stack([getattr(each, name) for each in told], 1) for name in _Told._fields)
        return [self._imagined(*each) for each in zip(sums, strange, strict=True)]

    def _imagined(self, sums: np.ndarray, strange: np.ndarray) -> Imagined:
        """Of one policy's sums [models, episodes, 2]."""
        return Imagined(Episodes(sums[..., 0], sums[..., 1], self.logged), float(strange.mean()))


def ensemble_of(
    models: Sequence[Model], initial_observations: jax.Array, horizon: int, rows: int, seed: int = 0
) -> Ensemble:
    """To imagine about so many rows of each policy, from each logged first state equally often or from some of them."""
    episodes = max(FEWEST_EPISODES, rows // (horizon * len(models)))
    logged = min(len(initial_observations), episodes)
    chosen = np.random.default_rng(seed).permutation(len(initial_observations))[:logged]
    starts = jnp.tile(jnp.asarray(initial_observations)[chosen], (-(-episodes // logged), 1))
    return Ensemble(models, starts, logged, jnp.ones(horizon), jax.random.key(seed))


class _Told(NamedTuple):
    """By one model, of several policies."""

    sums: jax.Array
    """[policies, episodes, 2] returns and costs"""
    strange: jax.Array
    """[policies]"""


@dataclass(frozen=True)
class _Under:
    """What a family does under a condition."""

    actor: Conditional

    def __call__(self, network: Any, condition: jax.Array, observations: jax.Array, key: jax.Array) -> jax.Array:
        return self.actor.draw({"network": network, "condition": condition}, observations, key)


@dataclass(frozen=True)
class _Standard:
    """What a policy does, in the units of the models, under any condition."""

    act: RawAct

    def __call__(
        self, params: tuple[PolicyParams, Units], condition: jax.Array, observations: jax.Array, key: jax.Array
    ) -> jax.Array:
        policy, units = params
        raw = observations * units.observation_scale + units.observation_shift
        return (self.act(policy, key, raw) - units.action_shift) / units.action_scale


@partial(jax.jit, static_argnames="draw")
def _episodes(
    draw: _Under | _Standard,
    model: Model,
    params: Any,
    conditions: jax.Array,
    starts: jax.Array,
    weights: jax.Array,
    key: jax.Array,
) -> _Told:
    """Of a policy under each of the conditions [k, ...], with the same noise."""

    def under(condition: jax.Array) -> _Told:
        steps, lived = imagine(model, partial(draw, params, condition), starts, len(weights), key)
        seen, going = steps.now.observations[::STEPS_A_LOOK], lived[::STEPS_A_LOOK]
        strange = going & jax.vmap(partial(are_strange, model))(seen)
        counted = weights[:, None] * lived
        return _Told((counted[..., None] * steps.values).sum(0), strange.sum() / going.sum())

    return jax.vmap(under)(conditions)


def _played(act: Act, model: Model, key: jax.Array, starts: jax.Array, weights: jax.Array) -> _Told:
    """The same episodes, step by step."""
    now = begin(act, starts, jax.random.fold_in(key, len(weights)))
    going = np.ones(len(starts), bool)
    sums, strange, looks = np.zeros((len(starts), 2)), 0, 0
    for t, weight in enumerate(np.asarray(weights)):
        if t % STEPS_A_LOOK == 0:
            strange += int((going & np.asarray(are_strange(model, now.observations))).sum())
            looks += int(going.sum())
        step = take_step(model, act, now, jax.random.fold_in(key, t))
        sums += (weight * going)[:, None] * np.asarray(step.values)
        now, going = step.following, going & ~np.asarray(step.ended)
    return _Told(jnp.asarray(sums[None]), jnp.asarray([strange / looks]))
