"""OptiDICE, and COptiDICE with its conservative bound on the cost (Lee et al., 2021 and 2022).

ν is a Lagrange multiplier here, differentiated as such through s, s' and s_0; w(s,a) is the stationary correction, so
E_D[w c] estimates the cost. COptiDICE moves λ on an upper bound of it: the worst reweighting p of the logged
transitions within KL(p ‖ D) <= ε, with a multiplier χ(s) that holds the reweighted flow to the Bellman equation,

    min_{τ>=0, χ}  τ log E_D[exp((w(s,a) (c + γχ(s') - χ(s)) + (1-γ) χ(s_0)) / τ)] + τ ε.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from corsdice import divergences, losses
from corsdice.algorithms import contract
from corsdice.algorithms.contract import ADAM, Hypers, Metrics, Params, descend
from corsdice.algorithms.logs import Batch, Logs, draw_batch, draw_initial, penalised_rewards
from corsdice.algorithms.multiplier import GAINS, Controller, controller, in_deviations, recent, steered
from corsdice.networks import Critic


@dataclass(frozen=True)
class Config(contract.MixtureConfig):
    constrained: bool = False
    """Hold the cost to its limit: COptiDICE."""
    divergence: str = "soft-chi2"
    layer_norm: bool = False
    cost_radius: float = 0.01
    """ε of the cost's upper bound; 0 takes the plain estimate."""
    gains: tuple[float, float, float] = GAINS
    """Of λ's controller: proportional, integral, derivative."""

    def critic(self) -> Critic:
        return Critic(self.widths, 1, self.layer_norm)

    @property
    def bounded(self) -> bool:
        return self.constrained and self.cost_radius > 0


class State(NamedTuple):
    params: Params
    optimiser: Any
    controller: Controller
    cost: jax.Array
    """Of an episode, as estimated of late."""


def init(config: Config, hypers: Hypers, logs: Logs, key: jax.Array) -> State:
    s, a = logs.transitions.observations[:1], logs.transitions.actions[:1]
    nu_key, chi_key, actor_key = jax.random.split(key, 3)
    params: Params = {
        "nu": config.critic().init(nu_key, s),
        "constant": jnp.zeros(()),
        "actor": config.clone(a.shape[-1]).init(actor_key, s),
    }
    if config.bounded:
        params |= {"chi": config.critic().init(chi_key, s), "log_tau": jnp.zeros(())}
    return State(params, ADAM.init(params), controller(), jnp.zeros(()))


def update(
    config: Config, hypers: Hypers, logs: Logs, state: State, step: jax.Array, key: jax.Array
) -> tuple[State, Metrics]:
    batch_key, initial_key = jax.random.split(key)
    batch = draw_batch(logs, batch_key, config.batch_size, logs.rows)
    initial = draw_initial(logs, initial_key, config.batch_size)
    f = divergences.by_name(config.divergence)
    n, discount = config.batch_size, hypers.discount
    reward = penalised_rewards(logs.units, batch, state.controller.multiplier, discount)
    stacked = jnp.concatenate([batch.observations, batch.next_observations, initial])
    costs = logs.raw_costs(batch)

    def total_loss(params: Params) -> tuple[jax.Array, tuple[dict[str, jax.Array], jax.Array, jax.Array]]:
        # The constant of ν, the multiplier of E_D[w] = 1, is a parameter of its own: see `losses.extraction_losses`.
        nu = config.critic().apply(params["nu"], stacked)[0] + params["constant"] / (1 - discount)
        advantage = reward + losses.flow_error(nu[:n], (1 - batch.terminals) * nu[n : 2 * n], discount)
        w = jax.lax.stop_gradient(f.weight(advantage / hypers.alpha))
        actor = config.clone(batch.actions.shape[-1])
        likelihood = actor.log_likelihood(params["actor"], batch.observations, batch.actions)
        terms = {
            "nu_loss": losses.optidice_nu_loss(f, advantage, nu[2 * n :], hypers.alpha, discount),
            "policy_loss": losses.policy_loss(likelihood, w),
        }
        p = jnp.full(n, 1 / n)
        if config.bounded:
            chi = config.critic().apply(params["chi"], stacked)[0]
            e_chi = losses.flow_error(chi[:n], (1 - batch.terminals) * chi[n : 2 * n], discount)
            tau = jnp.exp(params["log_tau"])
            terms["bound_loss"], p = losses.cost_bound(w, costs, e_chi, chi[2 * n :], tau, config.cost_radius, discount)
        return jnp.sum(jnp.stack(list(terms.values()))), (terms, w, p)

    gradients, (terms, w, p) = jax.grad(total_loss, has_aux=True)(state.params)
    params, optimiser = descend(config, hypers, state.params, gradients, state.optimiser, step)
    per_step = losses.corrected_mean(w, costs, batch.terminals, discount, p)
    cost = recent(state.cost, contract.per_episode(hypers, per_step))
    steering = state.controller
    if config.constrained:
        violation = (cost - hypers.episode_limit) / hypers.episode_per_step
        steering = steered(steering, in_deviations(hypers, logs, violation), config.gains)
    metrics = terms | contract.cost_metrics(hypers, logs, steering.multiplier, cost)
    return State(params, optimiser, steering, cost), metrics | contract.weight_metrics(w)


def corrections(config: Config, hypers: Hypers, logs: Logs, state: State, batch: Batch) -> jax.Array:
    """w(s,a), one for each row."""
    nu = state.params["nu"]
    constant = state.params["constant"] / (1 - hypers.discount)
    here = config.critic().apply(nu, batch.observations)[0] + constant
    then = (1 - batch.terminals) * (config.critic().apply(nu, batch.next_observations)[0] + constant)
    reward = penalised_rewards(logs.units, batch, state.controller.multiplier, hypers.discount)
    advantage = reward + losses.flow_error(here, then, hypers.discount)
    return divergences.by_name(config.divergence).weight(advantage / hypers.alpha)
