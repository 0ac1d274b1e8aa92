"""SemiDICE: ν and Q of a reward, the policy correction w(a|s), and the actor cloned with it.

What Algorithm 1 does at one λ that moves, and the family at every λ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from corsdice import divergences, losses
from corsdice.algorithms import contract
from corsdice.algorithms.contract import Params
from corsdice.algorithms.logs import Batch
from corsdice.networks import Critic


@dataclass(frozen=True)
class Config(contract.MixtureConfig):
    divergence: str = "soft-chi2"
    """f of the policy: kl, chi2 or soft-chi2."""
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


def init_params(config: Config, observations: jax.Array, actions: jax.Array, key: jax.Array) -> Params:
    nu_key, q_key, actor_key = jax.random.split(key, 3)
    return {
        "nu": config.critic().init(nu_key, observations),
        "q": config.critic(config.critics).init(q_key, jnp.concatenate([observations, actions], -1)),
        "actor": config.clone(actions.shape[-1]).init(actor_key, observations),
    }


def terms(
    config: Config,
    params: Params,
    held: Params,
    batch: Batch,
    rewards: jax.Array,
    alpha: jax.Array,
    discount: jax.Array,
    balance: float = 0.5,
) -> Terms:
    """The losses of one step; `held` has ν of the last step and the slowly following Q under "target_q".

    α is one number, or one for each row, as the rewards are.
    """
    f = divergences.by_name(config.divergence)
    pairs = jnp.concatenate([batch.observations, batch.actions], -1)
    nu_network, q_network = config.critic(), config.critic(config.critics)
    nu = nu_network.apply(params["nu"], batch.observations)[0]
    nu_next = (1 - batch.terminals) * nu_network.apply(held["nu"], batch.next_observations)[0]
    q = q_network.apply(params["q"], pairs)
    target_q = q_network.apply(held["target_q"], pairs).min(0)
    w = jax.lax.stop_gradient(f.weight((target_q - nu) / alpha))
    actor = config.clone(batch.actions.shape[-1])
    likelihood = actor.log_likelihood(params["actor"], batch.observations, batch.actions)
    return Terms(
        {
            "nu_loss": losses.nu_loss(f, target_q, nu, alpha, balance=balance),
            "q_loss": jax.vmap(lambda one: losses.q_loss(one, rewards, nu_next, discount))(q).sum(),
            "policy_loss": losses.policy_loss(likelihood, w),
        },
        w,
    )


def policy_correction(
    config: Config, nu: Params, target_q: Params, observations: jax.Array, actions: jax.Array, alpha: Any
) -> jax.Array:
    """w(a|s) = max(0, (f')^-1((Q(s,a) - ν(s))/α)), Eq. semidice_w, one for each row."""
    q = config.critic(config.critics).apply(target_q, jnp.concatenate([observations, actions], -1)).min(0)
    advantage = q - config.critic().apply(nu, observations)[0]
    return divergences.by_name(config.divergence).weight(advantage / alpha)
