"""What the actor-critic baselines share: critics of return and cost, and a multiplier that a PID controller moves.

Return and cost are in standard units: critics that start at 0 start at what the logs have on average, which is nearer
to the truth than nothing. (From nothing, Q_c was below a limit of 20 on point-circle for the first quarter of 8,000
updates, and λ was 0.) λ, in standard units, answers to Q_c at first states, where a limit is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from corsdice import losses
from corsdice.actors import BestOf
from corsdice.algorithms import contract
from corsdice.algorithms.contract import (
    ADAM,
    Hypers,
    Metrics,
    Params,
    cost_metrics,
    descend,
    per_episode,
)
from corsdice.algorithms.logs import Batch, Logs, draw_batch, draw_initial, penalised_rewards, standard_costs
from corsdice.algorithms.multiplier import GAINS, Controller, controller, steered
from corsdice.networks import VAE, Critic

FIRST_STATES = 32
"""At which a step looks for Q_c: λ adds up over steps, and a whole batch of them would double the candidates drawn."""


@dataclass(frozen=True)
class CriticConfig(contract.Config):
    critics: int = 2
    """Networks for the return, and as many for the cost."""
    caution: float = 0.75
    """How much the least favourable of them counts, against the most favourable."""
    vae_weight: float = 0.5
    """Of the KL from the prior, in the VAE's loss."""

    def critic(self) -> Critic:
        return Critic(self.widths, self.critics)


@dataclass(frozen=True)
class Config(CriticConfig):
    candidates: int = 10
    """Actions drawn, of which the best is taken."""
    gains: tuple[float, float, float] = GAINS
    """Of λ's controller: proportional, integral, derivative."""


def q_cost_of(hypers: Hypers, logs: Logs, per_step: jax.Array | float) -> jax.Array:
    """Q_c of a raw cost that is the same at every step; that of the limit per step is the limit of Q_c."""
    return (per_step - logs.units.cost_shift) / (logs.units.cost_scale * (1 - hypers.discount))


def episode_cost(hypers: Hypers, logs: Logs, q_cost: jax.Array) -> jax.Array:
    """What Q_c amounts to in an episode."""
    return per_episode(hypers, q_cost * (logs.units.cost_scale * (1 - hypers.discount)) + logs.units.cost_shift)


class State(NamedTuple):
    params: Params
    target: Params
    """Follows "actor", slowly."""
    optimiser: Any
    controller: Controller


def init(config: Config, logs: Logs, key: jax.Array, others: Params) -> State:
    """With the parameters of the actor, and others beside it."""
    rows = logs.transitions
    params = {"actor": config.actor(rows.actions.shape[-1]).init(key, rows.observations[:1])} | others
    return State(params, params["actor"], ADAM.init(params), controller())


Improvement = Callable[[Params, Params, Batch, jax.Array], dict[str, jax.Array]]
"""(params, held parameters of the actor, batch, key) -> the losses of all but the critics."""


def update(
    config: Config,
    actor: BestOf,
    hypers: Hypers,
    logs: Logs,
    state: State,
    step: jax.Array,
    key: jax.Array,
    improvement: Improvement,
) -> tuple[State, Metrics]:
    """The critics are of the policy that ships: the best of its own candidates in s'."""
    batch_key, initial_key, next_key, first_key, key = jax.random.split(key, 5)
    batch = draw_batch(logs, batch_key, config.batch_size, logs.rows)
    initial = draw_initial(logs, initial_key, FIRST_STATES)
    multiplier = state.controller.multiplier
    following = state.target | {"multiplier": multiplier}
    next_actions = actor.draw(following, batch.next_observations, next_key)
    next_q, next_cost = (
        (1 - batch.terminals) * each for each in actor.values(following, batch.next_observations, next_actions)
    )
    rewards = penalised_rewards(logs.units, batch, jnp.zeros(()), hypers.discount)
    costs = standard_costs(logs.units, batch, hypers.discount)
    pairs = jnp.concatenate([batch.observations, batch.actions], -1)
    held = state.params["actor"] | {"multiplier": multiplier}

    def total_loss(params: Params) -> tuple[jax.Array, dict[str, jax.Array]]:
        q, q_cost = (config.critic().apply(params["actor"][name], pairs) for name in ("q", "q_cost"))
        terms = {
            "q_loss": ensemble_loss(q, rewards, next_q, hypers.discount),
            "cost_loss": ensemble_loss(q_cost, costs, next_cost, hypers.discount),
        } | improvement(params, held, batch, key)
        return jnp.sum(jnp.stack(list(terms.values()))), terms

    gradients, terms = jax.grad(total_loss, has_aux=True)(state.params)
    params, optimiser = descend(config, hypers, state.params, gradients, state.optimiser, step)
    first_cost = actor.values(held, initial, actor.draw(held, initial, first_key))[1].mean()
    violation = first_cost - q_cost_of(hypers, logs, hypers.per_step_limit)
    moved = steered(state.controller, violation, config.gains)
    params["actor"] = params["actor"] | {"multiplier": moved.multiplier}
    target = optax.incremental_update(params["actor"], state.target, hypers.target_rate)
    metrics = terms | cost_metrics(hypers, logs, multiplier, episode_cost(hypers, logs, first_cost))
    return State(params, target, optimiser, moved), metrics


def ensemble_loss(q: jax.Array, rewards: jax.Array, next_q: jax.Array, discount: jax.Array) -> jax.Array:
    """Every member [members, n] on the same target."""
    return jax.vmap(lambda one: losses.q_loss(one, rewards, next_q, discount))(q).sum()


def penalised_value(actor: BestOf, held: Params, observations: jax.Array, actions: jax.Array) -> jax.Array:
    """Q - λ Q_c, a function of the actions."""
    q, q_cost = actor.values(held, observations, actions)
    return q - held["multiplier"] * q_cost


def vae_loss(config: CriticConfig, vae: VAE, params: Params, batch: Batch, key: jax.Array) -> jax.Array:
    latent = vae.apply(params, batch.observations, batch.actions, method="encode")
    drawn = latent.mean + jnp.exp(latent.log_std) * jax.random.normal(key, latent.mean.shape)
    decoded = jnp.tanh(vae.apply(params, batch.observations, drawn, method="decode"))
    return losses.vae_loss(decoded, batch.actions, latent.mean, latent.log_std, config.vae_weight)
