"""CPQ: constraints penalised Q-learning (Xu et al., 2022).

Actions that the logs do not know, by a VAE's divergence from its prior, are made to look costly: where Q_c of them is
below what they should be thought to cost, it is raised. (The paper raises it without end, by a dual variable; in 5,000
steps on point-circle that took Q_c to a thousand times what anything can cost.) Return is learned, and the policy
improved, only through actions whose Q_c is within the limit; what would follow an action beyond it counts as nothing.

Q_c is of raw costs over `cost_scale`, not shifted: it starts at 0, within the limit. From the logs' mean it would start
beyond, and there the policy learns from Q_c alone, before Q_c knows anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from corsdice import losses
from corsdice.actors import cautious_values
from corsdice.algorithms import lagrangian
from corsdice.algorithms.contract import ADAM, Hypers, Metrics, Params, cost_metrics, descend, per_episode
from corsdice.algorithms.lagrangian import ensemble_loss, vae_loss
from corsdice.algorithms.logs import Logs, draw_batch, draw_initial, penalised_rewards
from corsdice.networks import VAE, Actor


@dataclass(frozen=True)
class Config(lagrangian.CriticConfig):
    unknown: float = 0.75
    """Quantile of the divergences of logged actions beyond which an action is unknown."""
    unknown_cost: float = 1.5
    """What unknown actions should be thought to cost at least, in limits."""
    penalty: float = 1.0
    """Of unknown actions that are thought to cost less. 0 is what public code comes to: its penalty has no gradient."""
    recover: bool = True
    """Improve actions beyond the limit by their cost. Without, as published, they teach the policy nothing, and one
    that is beyond the limit everywhere stays there."""

    def actor(self, actions: int) -> Actor:
        return Actor(actions, self.widths, components=1, squash=True)


class State(NamedTuple):
    params: Params
    target: Params
    """Of both critics."""
    optimiser: Any


def init(config: Config, hypers: Hypers, logs: Logs, key: jax.Array) -> State:
    s, a = logs.transitions.observations[:1], logs.transitions.actions[:1]
    actor_key, vae_key, q_key, cost_key = jax.random.split(key, 4)
    pairs = jnp.concatenate([s, a], -1)
    critics = {"q": config.critic().init(q_key, pairs), "q_cost": config.critic().init(cost_key, pairs)}
    params = critics | {
        "actor": config.actor(a.shape[-1]).init(actor_key, s),
        "vae": VAE(a.shape[-1], config.widths).init(vae_key, s, a),
    }
    return State(params, critics, ADAM.init(params))


def update(
    config: Config, hypers: Hypers, logs: Logs, state: State, step: jax.Array, key: jax.Array
) -> tuple[State, Metrics]:
    batch_key, initial_key, next_key, own_key, vae_key, first_key = jax.random.split(key, 6)
    batch = draw_batch(logs, batch_key, config.batch_size, logs.rows)
    initial = draw_initial(logs, initial_key, config.batch_size)
    held = state.params
    actor, vae = config.actor(batch.actions.shape[-1]), VAE(batch.actions.shape[-1], config.widths)
    values = partial(cautious_values, config.critic(), config.caution)
    discount = hypers.discount
    limit = hypers.per_step_limit / (1 - discount) / logs.units.cost_scale
    costs = logs.raw_costs(batch) / logs.units.cost_scale
    nothing = -logs.units.reward_shift / logs.units.reward_scale / (1 - discount)

    next_actions = actor.draw(held["actor"], batch.next_observations, next_key)
    next_q, next_cost = values(state.target, batch.next_observations, next_actions)
    next_q = jnp.where(next_cost <= limit, next_q, nothing)
    next_cost = jnp.clip(next_cost, 0.0, logs.highest_cost / (1 - discount) / logs.units.cost_scale)
    alive = 1 - batch.terminals
    rewards = penalised_rewards(logs.units, batch, jnp.zeros(()), discount)
    pairs = jnp.concatenate([batch.observations, batch.actions], -1)

    def divergence(actions: jax.Array) -> jax.Array:
        return losses.divergence_from_prior(*vae.apply(held["vae"], batch.observations, actions, method="encode"))

    known = jnp.quantile(divergence(batch.actions), config.unknown)

    def total_loss(params: Params) -> tuple[jax.Array, dict[str, jax.Array]]:
        q, q_cost = (config.critic().apply(params[name], pairs) for name in ("q", "q_cost"))
        own = actor.draw(params["actor"], batch.observations, own_key)
        unknown = jax.lax.stop_gradient(divergence(own) >= known)
        own_pairs = jax.lax.stop_gradient(jnp.concatenate([batch.observations, own], -1))
        own_cost = config.critic().apply(params["q_cost"], own_pairs)
        too_cheap = jnp.maximum(0.0, config.unknown_cost * limit - own_cost)
        value, cost = values(held, batch.observations, own)
        terms = {
            "vae_loss": vae_loss(config, vae, params["vae"], batch, vae_key),
            "q_loss": ensemble_loss(q, rewards, alive * next_q, discount),
            "cost_loss": ensemble_loss(q_cost, costs, alive * next_cost, discount),
            "penalty_loss": config.penalty * (unknown * too_cheap**2).mean(),
            "policy_loss": -jnp.where(cost <= limit, value - nothing, -cost * config.recover).mean(),
        }
        return jnp.sum(jnp.stack(list(terms.values()))), terms

    gradients, terms = jax.grad(total_loss, has_aux=True)(held)
    params, optimiser = descend(config, hypers, held, gradients, state.optimiser, step)
    target = optax.incremental_update({name: params[name] for name in state.target}, state.target, hypers.target_rate)
    first_cost = values(held, initial, actor.draw(held["actor"], initial, first_key))[1].mean()
    episode_cost = per_episode(hypers, (1 - discount) * first_cost * logs.units.cost_scale)
    metrics = terms | cost_metrics(hypers, logs, jnp.zeros(()), episode_cost)
    return State(params, target, optimiser), metrics
