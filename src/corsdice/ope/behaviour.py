"""w(a|s) = π(a|s) / π_D(a|s) of any policy, with densities fitted where none is known.

Only estimators that begin with a policy correction need it; logs seldom hold the probabilities of their actions.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.networks import Actor
from corsdice.ope.evidence import Evidence, Question
from corsdice.ope.networks import Params, Rows, Starts, Training, fit
from corsdice.policy import Policy

COMPONENTS = 5
LARGEST = 100.0
"""A ratio beyond it says that the densities are wrong rather than how likely an action is."""


@dataclass(frozen=True)
class Density:
    """A mixture of clipped Gaussians, by maximum likelihood."""

    actions: int
    momentum: float = 0.9
    following: float = 1.0

    @property
    def rates(self) -> dict[str, float]:
        return {"actor": 1e-3}

    def actor(self, widths: tuple[int, ...]) -> Actor:
        return Actor(self.actions, widths, COMPONENTS, squash=False)

    def init(self, key: jax.Array, widths: tuple[int, ...], rows: Rows) -> Params:
        return {"actor": self.actor(widths).init(key, rows.observations[:1])}

    def loss(
        self, params: Params, held: Params, rows: Rows, starts: Starts, widths: tuple[int, ...], discount: float
    ) -> jax.Array:
        return -self.log_density(params, rows.observations, rows.actions, widths).mean()

    def log_density(
        self, params: Params, observations: jax.Array, actions: jax.Array, widths: tuple[int, ...]
    ) -> jax.Array:
        return self.actor(widths).log_likelihood(params["actor"], observations, actions)


def behaviour_log_density(evidence: Evidence, training: Training, seed: int = 0) -> jax.Array:
    """log π_D(a|s) [n] of the logged actions, under a mixture fitted to them."""
    return _fitted(evidence, evidence.observations, evidence.actions, training, seed)


def function_log_density(evidence: Evidence, question: Question, training: Training, seed: int = 0) -> jax.Array:
    """log π(a|s) [n] of the logged actions, under a mixture fitted to what a policy of unknown density does."""
    return _fitted(evidence, evidence.next_observations, question.next_actions, training, seed)


def _fitted(
    evidence: Evidence, observations: jax.Array, actions: jax.Array, training: Training, seed: int
) -> jax.Array:
    method, params = _fit(evidence, observations, actions, training, seed)
    return method.log_density(params, evidence.observations, evidence.actions, training.widths)


def _fit(
    evidence: Evidence, observations: jax.Array, actions: jax.Array, training: Training, seed: int
) -> tuple[Density, Params]:
    method = Density(actions.shape[1])
    unused = jnp.zeros(evidence.rows)
    rows = Rows(observations, actions, observations, actions, unused, unused, unused)
    starts = Starts(observations[:1], actions[:1])
    return method, fit(method, training, rows, starts, evidence.discount, jax.random.key(seed))


def policy_log_density(
    evidence: Evidence, policy: Policy, question: Question, training: Training, seed: int = 0
) -> jax.Array:
    """log π(a|s) [n] of the logged actions under a trained policy, whose units are those of the evidence.

    Not every actor knows it; of one that can only draw, a mixture is fitted to what it draws.
    """
    if isinstance(policy.actor, Actor):
        return policy.actor.log_likelihood(policy.params.actor, evidence.observations, evidence.actions)
    return function_log_density(evidence, question, training, seed)


def policy_correction(policy: jax.Array, behaviour: jax.Array) -> jax.Array:
    """w(a|s) [n] from two log densities, made to have mean 1 as every policy correction has."""
    ratio = np.exp(np.clip(np.asarray(policy - behaviour, np.float64), None, np.log(LARGEST)))
    return jnp.asarray(ratio / max(ratio.mean(), 1e-12), jnp.float32)
