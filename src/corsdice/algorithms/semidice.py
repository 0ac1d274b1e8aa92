"""SemiDICE: ν and Q of the reward r - λc, the policy correction w(a|s), and the actor cloned with it.

The unconstrained part of CORSDICE, and with λ = 0 an algorithm of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from corsdice import divergences, losses
from corsdice.algorithms import contract
from corsdice.algorithms.contract import Hypers, Params
from corsdice.algorithms.logs import Batch, Logs, penalised_rewards
from corsdice.networks import Critic


@dataclass(frozen=True)
class Config(contract.MixtureConfig):
    divergence: str = "soft-chi2"
    """f of the policy: kl, chi2 or soft-chi2."""
    balance: float = 0.5
    """β of f-DVL, which adds up w(a|s) to (1-β)/β: 1 at one half, as a policy correction must."""
    alpha_factor: float = 1.0
    """SQL's α counts twice."""
    critics: int = 1
    """Q networks; with two the smaller value counts."""
    layer_norm: bool = False
    """LayerNorm in every critic."""

    def critic(self, members: int = 1) -> Critic:
        return Critic(self.widths, members, self.layer_norm)


class Terms(NamedTuple):
    losses: dict[str, jax.Array]
    """Their sum is what is descended on; no term's gradient reaches another's parameters."""
    policy_correction: jax.Array
    """w(a|s) [batch], held."""


def init_params(config: Config, logs: Logs, key: jax.Array) -> Params:
    s, a = logs.transitions.observations[:1], logs.transitions.actions[:1]
    nu_key, q_key, actor_key = jax.random.split(key, 3)
    return {
        "nu": config.critic().init(nu_key, s),
        "q": config.critic(config.critics).init(q_key, jnp.concatenate([s, a], -1)),
        "actor": config.clone(a.shape[-1]).init(actor_key, s),
    }


def terms(
    config: Config, hypers: Hypers, logs: Logs, params: Params, held: Params, multiplier: jax.Array, batch: Batch
) -> Terms:
    """The losses of one step; `held` has ν of the last step and the slowly following Q under "target_q"."""
    f = divergences.by_name(config.divergence)
    pairs = jnp.concatenate([batch.observations, batch.actions], -1)
    nu_network, q_network = config.critic(), config.critic(config.critics)
    nu = nu_network.apply(params["nu"], batch.observations)[0]
    nu_next = (1 - batch.terminals) * nu_network.apply(held["nu"], batch.next_observations)[0]
    q = q_network.apply(params["q"], pairs)
    target_q = q_network.apply(held["target_q"], pairs).min(0)
    reward = penalised_rewards(logs.units, batch, multiplier, hypers.discount)
    alpha = config.alpha_factor * hypers.alpha
    w = jax.lax.stop_gradient(f.weight((target_q - nu) / alpha))
    actor = config.clone(batch.actions.shape[-1])
    likelihood = actor.log_likelihood(params["actor"], batch.observations, batch.actions)
    return Terms(
        {
            "nu_loss": losses.nu_loss(f, target_q, nu, alpha, balance=config.balance),
            "q_loss": jax.vmap(lambda one: losses.q_loss(one, reward, nu_next, hypers.discount))(q).sum(),
            "policy_loss": losses.policy_loss(likelihood, w),
        },
        w,
    )


def policy_correction(config: Config, hypers: Hypers, nu: Params, target_q: Params, batch: Batch) -> jax.Array:
    """w(a|s) = max(0, (f')^-1((Q(s,a) - ν(s))/α)), Eq. semidice_w, one for each row."""
    pairs = jnp.concatenate([batch.observations, batch.actions], -1)
    q = config.critic(config.critics).apply(target_q, pairs).min(0)
    advantage = q - config.critic().apply(nu, batch.observations)[0]
    return divergences.by_name(config.divergence).weight(advantage / (config.alpha_factor * hypers.alpha))
