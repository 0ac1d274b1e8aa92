"""Ways to act by a model of the logged actions: as the logs do, guided, or by choosing among what they might do.

All are functions of one observation and a key, mapped over rows some at a time: the candidates of a hundred thousand
rows would not fit into memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from corsdice.conditions import alpha_of, multiplier_seen
from corsdice.diffusion.guidance import guidance
from corsdice.diffusion.score import begin, expected_action
from corsdice.diffusion.solver import Predict, solve
from corsdice.divergences import by_name
from corsdice.networks import Critic, ScoreNet

AT_ONCE = 16_384
"""Actions that are drawn side by side."""


@dataclass(frozen=True)
class Diffused:
    """Actions as the logs have them, by `steps` predictions of a score model."""

    actions: int
    width: int = 128
    blocks: int = 3
    time_size: int = 32
    condition_size: int = 128
    steps: int = 10

    @property
    def network(self) -> ScoreNet:
        return self.score_net(self.actions)

    def score_net(self, outputs: int) -> ScoreNet:
        """Of this shape, with so many outputs."""
        return ScoreNet(outputs, self.width, self.blocks, self.time_size, self.condition_size)

    def init(self, key: jax.Array, observations: jax.Array) -> Any:
        return begin(self.network, key, observations, jnp.zeros((1, self.actions))).params

    def draw(self, params: Any, observations: jax.Array, key: jax.Array) -> jax.Array:
        return each_row(lambda row, key: self.several(params, row, 1, key)[0], observations, key, 1)

    def several(self, params: Any, observation: jax.Array, count: int, key: jax.Array) -> jax.Array:
        """[count, A] for one observation."""
        return self.flow(self.expected(params, observation), count, key)

    def expected(self, params: Any, observation: jax.Array) -> Predict:
        """E[a_0 | a_t, s] in this place; what depends on the place alone is computed here."""
        condition = self.network.apply(params, observation, method="condition")
        return lambda noised, level: expected_action(self.network, params, condition, noised, level)

    def flow(self, predict: Predict, count: int, key: jax.Array) -> jax.Array:
        """[count, A] where noise is led to."""
        return solve(predict, jax.random.normal(key, (count, self.actions)), self.steps)


@dataclass(frozen=True)
class Resampled:
    """Of some candidates that the logs might have, one drawn in proportion to w(a|s): π_w itself, the more the nearer.

    It needs no guidance: what a new α or limit changes is Q, ν and α.
    """

    behaviour: Diffused
    widths: tuple[int, ...]
    """Of the critics."""
    critics: int = 1
    layer_norm: bool = False
    divergence: str = "soft-chi2"
    candidates: int = 16
    of_family: bool = False
    """Observations end with λ, and α counts as it does beside that λ."""

    @property
    def actions(self) -> int:
        return self.behaviour.actions

    def init(self, key: jax.Array, observations: jax.Array) -> Any:
        behaviour_key, q_key, nu_key = jax.random.split(key, 3)
        return {
            "behaviour": self.behaviour.init(behaviour_key, observations),
            "q": _critic(self).init(q_key, _pairs(observations[:1], jnp.zeros((1, self.actions)))),
            "nu": Critic(self.widths, 1, self.layer_norm).init(nu_key, observations[:1]),
            "alpha": jnp.ones(()),
        }

    def draw(self, params: Any, observations: jax.Array, key: jax.Array) -> jax.Array:
        def one(row: jax.Array, key: jax.Array) -> jax.Array:
            noise_key, choice_key = jax.random.split(key)
            candidates, w = self.weighed(params, row, noise_key)
            return candidates[jax.random.categorical(choice_key, _log(w))]

        return each_row(one, observations, key, self.candidates)

    def weighed(self, params: Any, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Candidates [n, A] for one observation, and w(a|s) [n]."""
        candidates = self.behaviour.several(params["behaviour"], observation, self.candidates, key)
        nu = Critic(self.widths, 1, self.layer_norm).apply(params["nu"], observation)[0]
        advantage = _values(self, params["q"], observation, candidates) - nu
        alpha = params["alpha"]
        if self.of_family:
            alpha = alpha_of(alpha, multiplier_seen(observation))
        return candidates, by_name(self.divergence).weight(advantage / alpha)


@dataclass(frozen=True)
class Guided:
    """Candidates that are led from the logs towards π_w, and the one of the largest Q: guide-then-select (D-DICE).

    With one candidate and scale 1 it is π_w; with more it is greedier than what any estimate of w speaks of.
    """

    behaviour: Diffused
    widths: tuple[int, ...]
    """Of the critics."""
    critics: int = 1
    layer_norm: bool = False
    scale: float = 1.0
    candidates: int = 1
    by: str = "denoising"
    """What guides: a score model of w π_D, or the "energy" of the paper."""

    @property
    def actions(self) -> int:
        return self.behaviour.actions

    @property
    def guide(self) -> ScoreNet:
        return self.behaviour.score_net(1) if self.by == "energy" else self.behaviour.network

    def init(self, key: jax.Array, observations: jax.Array) -> Any:
        behaviour_key, q_key, guide_key = jax.random.split(key, 3)
        actions = jnp.zeros((1, self.actions))
        return {
            "behaviour": self.behaviour.init(behaviour_key, observations),
            "q": _critic(self).init(q_key, _pairs(observations[:1], actions)),
            "guide": begin(self.guide, guide_key, observations, actions).params,
        }

    def draw(self, params: Any, observations: jax.Array, key: jax.Array) -> jax.Array:
        return each_row(lambda row, key: self.best(params, row, key), observations, key, self.candidates)

    def best(self, params: Any, observation: jax.Array, key: jax.Array) -> jax.Array:
        candidates = self.behaviour.flow(self.expected(params, observation), self.candidates, key)
        return candidates[_values(self, params["q"], observation, candidates).argmax()]

    def expected(self, params: Any, observation: jax.Array) -> Predict:
        """E[a_0 | a_t, s] of the logs, and `scale` times what w shifts it by."""
        logged = self.behaviour.expected(params["behaviour"], observation)
        if self.by == "energy":
            condition = self.guide.apply(params["guide"], observation, method="condition")

            def shift(noised: jax.Array, level: jax.Array) -> jax.Array:
                return guidance(self.guide, params["guide"], condition, noised, level)
        else:
            corrected = self.behaviour.expected(params["guide"], observation)
            if self.scale == 1:
                return corrected  # one network tells all

            def shift(noised: jax.Array, level: jax.Array) -> jax.Array:
                return corrected(noised, level) - logged(noised, level)

        return lambda noised, level: jnp.clip(logged(noised, level) + self.scale * shift(noised, level), -1, 1)


def each_row(
    one: Callable[[jax.Array, jax.Array], jax.Array], observations: jax.Array, key: jax.Array, candidates: int
) -> jax.Array:
    """An action [..., A] for each observation [..., O], by a function of one and a key, some rows at a time."""
    rows = observations.reshape(-1, observations.shape[-1])
    keys = jax.random.split(key, len(rows))
    at_once = max(1, AT_ONCE // candidates)
    if len(rows) <= at_once:
        actions = jax.vmap(one)(rows, keys)
    else:
        actions = jax.lax.map(lambda row: one(*row), (rows, keys), batch_size=at_once)
    return actions.reshape(*observations.shape[:-1], -1)


def _critic(actor: Resampled | Guided) -> Critic:
    return Critic(actor.widths, actor.critics, actor.layer_norm)


def _values(actor: Resampled | Guided, q: Any, observation: jax.Array, candidates: jax.Array) -> jax.Array:
    """Q [n], the smallest of all critics', of candidates [n, A] in one place."""
    rows = jnp.broadcast_to(observation, (len(candidates), len(observation)))
    return _critic(actor).apply(q, _pairs(rows, candidates)).min(0)


def _pairs(observations: jax.Array, actions: jax.Array) -> jax.Array:
    return jnp.concatenate([observations, actions], -1)


def _log(w: jax.Array) -> jax.Array:
    """Where no candidate has any weight, all are alike."""
    return jnp.log(jnp.maximum(w, jnp.finfo(w.dtype).tiny))
