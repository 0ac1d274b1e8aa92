"""ODICE (Mao et al., 2024): ν alone, with the gradient through ν(s') made orthogonal to the one through ν(s).

The semi-gradient of the DICE objective leaves out what ν(s') does to the residual; the full gradient lets the two
cancel. Here what is left of the backward gradient, when its part along the forward one is taken off, is added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from corsdice import divergences, losses
from corsdice.algorithms import contract
from corsdice.algorithms.contract import ADAM, Hypers, Metrics, Params, descend, weight_metrics
from corsdice.algorithms.logs import Batch, Logs, draw_batch, penalised_rewards
from corsdice.networks import Critic

SMALLEST_NORM = 1e-10


@dataclass(frozen=True)
class Config(contract.MixtureConfig):
    divergence: str = "chi2"
    balance: float = 0.5
    """β: how much the divergence counts against ν itself."""
    backward: float = 1.0
    """η: how much of the orthogonal backward gradient is taken."""
    layer_norm: bool = False

    def critic(self) -> Critic:
        return Critic(self.widths, 1, self.layer_norm)


class State(NamedTuple):
    params: Params
    target_nu: Params
    optimiser: Any


def init(config: Config, hypers: Hypers, logs: Logs, key: jax.Array) -> State:
    s, a = logs.transitions.observations[:1], logs.transitions.actions[:1]
    nu_key, actor_key = jax.random.split(key)
    params = {"nu": config.critic().init(nu_key, s), "actor": config.clone(a.shape[-1]).init(actor_key, s)}
    return State(params, params["nu"], ADAM.init(params))


def update(
    config: Config, hypers: Hypers, logs: Logs, state: State, step: jax.Array, key: jax.Array
) -> tuple[State, Metrics]:
    batch = draw_batch(logs, key, config.batch_size, logs.rows)
    actor = config.clone(batch.actions.shape[-1])
    nu = state.params["nu"]
    nu_value, nu_gradient = orthogonal_gradient(config, hypers, logs, nu, state.target_nu, batch)
    w = corrections(config, hypers, logs, state, batch)

    def policy_loss(params: Params) -> jax.Array:
        return losses.policy_loss(actor.log_likelihood(params, batch.observations, batch.actions), w)

    policy_value, actor_gradient = jax.value_and_grad(policy_loss)(state.params["actor"])
    gradients = {"nu": nu_gradient, "actor": actor_gradient}
    params, optimiser = descend(config, hypers, state.params, gradients, state.optimiser, step)
    target_nu = optax.incremental_update(params["nu"], state.target_nu, hypers.target_rate)
    metrics = {"nu_loss": nu_value, "policy_loss": policy_value} | weight_metrics(w)
    return State(params, target_nu, optimiser), metrics


def orthogonal_gradient(
    config: Config, hypers: Hypers, logs: Logs, nu: Params, target_nu: Params, batch: Batch
) -> tuple[jax.Array, Params]:
    """Of twice (1-β) ν(s) + β α f*_0(e_ν/α): the value, and what ν is moved against (labels odice-1 and following)."""
    f = divergences.by_name(config.divergence)
    beta = config.balance

    def own(nu: Params) -> jax.Array:
        return 2 * (1 - beta) * config.critic().apply(nu, batch.observations)[0].mean()

    def penalty(here: Params, then: Params) -> jax.Array:
        e = residual(config, hypers, logs, here, then, batch)
        return 2 * beta * hypers.alpha * f.conjugate(e / hypers.alpha).mean()

    own_value, own_gradient = jax.value_and_grad(own)(nu)
    penalty_value, forward = jax.value_and_grad(penalty)(nu, target_nu)
    backward = jax.grad(penalty, argnums=1)(target_nu, nu)
    along = _inner(backward, forward) / jnp.maximum(_inner(forward, forward), SMALLEST_NORM)
    return own_value + penalty_value, jax.tree.map(
        lambda first, fore, back: first + fore + config.backward * (back - along * fore),
        own_gradient,
        forward,
        backward,
    )


def residual(config: Config, hypers: Hypers, logs: Logs, here: Params, then: Params, batch: Batch) -> jax.Array:
    """e_ν = r + γν(s') - ν(s) of single transitions, ν(s) and ν(s') each with parameters of its own."""
    reward = penalised_rewards(logs.units, batch, jnp.zeros(()), hypers.discount)
    following = (1 - batch.terminals) * config.critic().apply(then, batch.next_observations)[0]
    return reward + losses.flow_error(config.critic().apply(here, batch.observations)[0], following, hypers.discount)


def corrections(config: Config, hypers: Hypers, logs: Logs, state: State, batch: Batch) -> jax.Array:
    """w(s,a,s'), one for each row: neither a policy's correction nor a stationary one (the paper's appendix B.2)."""
    e = residual(config, hypers, logs, state.params["nu"], state.target_nu, batch)
    return divergences.by_name(config.divergence).weight(e / hypers.alpha)


def _inner(left: Params, right: Params) -> jax.Array:
    return jnp.stack(jax.tree.leaves(jax.tree.map(jnp.vdot, left, right))).sum()
