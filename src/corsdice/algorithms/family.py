"""CORSDICE as a family: SemiDICE on r - λc for every λ at once, λ an input of ν, Q and the actors.

Nothing moves while it trains: which λ keeps a limit is told afterwards, by estimates of what each policy of the family
costs (`training.trace`). For a λ of its own in each row of a batch, all losses are SemiDICE's on (r - λc)/(1+λ) with
α/(1+λ), so that values are of order 1 whatever λ. Two actors learn from Q and w: the clone of the logged actions
weighted by w(a|s,λ), and an improved one, g(s,λ,b), which always does the same, on

    -Q(s,g,λ)/E|Q| + b min(w, 10) |g - a|²,

b from next to no imitation to next to nothing else (DDPG+BC; Fujimoto and Gu, 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from corsdice.actors import Conditional, Deterministic, Mode
from corsdice.algorithms import semidice
from corsdice.algorithms.contract import ADAM, Hypers, Metrics, Params, descend, weight_metrics
from corsdice.algorithms.logs import Batch, Logs, draw_batch, penalised_rewards
from corsdice.conditions import (
    IMITATION_FEATURES,
    IMITATIONS,
    MULTIPLIER_FEATURES,
    MULTIPLIERS,
    alpha_of,
    conditioned,
    imitation_features,
    multiplier_features,
)

LARGEST_WEIGHT = 10.0
"""Of a logged action that is imitated."""
SMALLEST_VALUE = 0.1
"""Q is divided by its size only once it has one."""


@dataclass(frozen=True)
class Config(semidice.Config):
    critics: int = 2
    layer_norm: bool = True
    imagined_rows: int = 80_000
    """Steps that each policy of the frontier is imagined for, by all models together."""

    def improved(self, actions: int) -> Deterministic:
        return Deterministic(actions, self.widths, self.layer_norm)

    def ways(self, actions: int) -> dict[str, Conditional]:
        """How the family can act, by name."""
        clone = self.clone(actions)
        return {
            "draws": Conditional(clone, MULTIPLIER_FEATURES),
            "mode": Conditional(Mode(clone), MULTIPLIER_FEATURES),
            "improved": Conditional(self.improved(actions), MULTIPLIER_FEATURES + IMITATION_FEATURES),
        }


class State(NamedTuple):
    params: Params
    target_q: Params
    optimiser: Any


def init(config: Config, hypers: Hypers, logs: Logs, key: jax.Array) -> State:
    a = logs.transitions.actions[:1]
    asked = conditioned(logs.transitions.observations[:1], jnp.zeros(MULTIPLIER_FEATURES))
    params = semidice.init_params(config, asked, a, key)
    closely = conditioned(asked, jnp.zeros(IMITATION_FEATURES))
    params["improved"] = config.improved(a.shape[-1]).init(jax.random.fold_in(key, 1), closely)
    return State(params, params["q"], ADAM.init(params))


class Asked(NamedTuple):
    """A batch in which every row has a λ of its own, beside its observations."""

    batch: Batch
    rewards: jax.Array
    """(r - λc)/(1+λ)"""
    alpha: jax.Array
    """α/(1+λ)"""


def ask(hypers: Hypers, logs: Logs, batch: Batch, position: jax.Array) -> Asked:
    multiplier, features = MULTIPLIERS.at(position), multiplier_features(position)
    return Asked(
        batch._replace(
            observations=conditioned(batch.observations, features),
            next_observations=conditioned(batch.next_observations, features),
        ),
        penalised_rewards(logs.units, batch, multiplier, hypers.discount) / (1 + multiplier),
        alpha_of(hypers.alpha, multiplier),
    )


def update(
    config: Config, hypers: Hypers, logs: Logs, state: State, step: jax.Array, key: jax.Array
) -> tuple[State, Metrics]:
    batch_key, multiplier_key, imitation_key = jax.random.split(key, 3)
    n = config.batch_size
    batch, rewards, alpha = ask(
        hypers, logs, draw_batch(logs, batch_key, n, logs.rows), jax.random.uniform(multiplier_key, (n,))
    )
    closeness = jax.random.uniform(imitation_key, (n,))
    held = state.params | {"target_q": state.target_q}

    def total_loss(params: Params) -> tuple[jax.Array, semidice.Terms]:
        terms, w = semidice.terms(config, params, held, batch, rewards, alpha, hypers.discount)
        terms = terms | {"improvement_loss": improvement_loss(config, params, held, batch, w, closeness)}
        return jnp.sum(jnp.stack(list(terms.values()))), semidice.Terms(terms, w)

    gradients, (terms, w) = jax.grad(total_loss, has_aux=True)(state.params)
    params, optimiser = descend(config, hypers, state.params, gradients, state.optimiser, step)
    target_q = optax.incremental_update(params["q"], state.target_q, hypers.target_rate)
    return State(params, target_q, optimiser), terms | weight_metrics(w)


def improvement_loss(
    config: Config, params: Params, held: Params, batch: Batch, w: jax.Array, closeness: jax.Array
) -> jax.Array:
    """E[(b min(w, 10) |g - a|² - Q(s,g,λ)/E|Q|) / (1 + b)], a function of g; every row has its own b."""
    actor = config.improved(batch.actions.shape[-1])
    chosen = actor.draw(params["improved"], conditioned(batch.observations, imitation_features(closeness)))
    pairs = jnp.concatenate([batch.observations, chosen], -1)
    value = config.critic(config.critics).apply(held["target_q"], pairs).min(0)
    size = jnp.maximum(jnp.abs(jax.lax.stop_gradient(value)).mean(), SMALLEST_VALUE)
    distance = ((chosen - batch.actions) ** 2).sum(-1)
    b = IMITATIONS.at(closeness)
    return ((b * jnp.minimum(w, LARGEST_WEIGHT) * distance - value / size) / (1 + b)).mean()


def networks(state: State, alpha: Any) -> dict[str, Params]:
    """What acts, by the names of the ways."""
    actor = state.params["actor"]
    return {"draws": actor, "mode": actor, "improved": state.params["improved"]}
