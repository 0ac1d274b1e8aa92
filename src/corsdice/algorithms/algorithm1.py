"""Algorithm 1 of the paper: SemiDICE on r - λc, and λ moved by an estimate of the cost.

The estimate is the choice that matters:

- "networks": A and μ extract w(s), and w(s) w(a|s) tells the discounted cost of π_w;
- "naive": w(a|s) is taken for the stationary correction, which it is not: the paper's cautionary example;
- "none": λ stays where it is, which is SemiDICE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from corsdice import divergences, losses
from corsdice.algorithms import semidice
from corsdice.algorithms.contract import (
    ADAM,
    Hypers,
    Metrics,
    Params,
    cost_metrics,
    descend,
    per_episode,
    weight_metrics,
)
from corsdice.algorithms.logs import Batch, Logs, draw_batch, draw_initial, penalised_rewards
from corsdice.algorithms.multiplier import ascended, in_deviations, recent

TINY = 1e-6
"""Instead of the mean of w(a|s), where no row of a batch has any."""


@dataclass(frozen=True)
class Config(semidice.Config):
    estimate: Literal["networks", "naive", "none"] = "networks"
    """What tells λ the cost."""
    balance: float = 0.5
    """β of f-DVL, which adds up w(a|s) to (1-β)/β: 1 at one half, as a policy correction must."""
    alpha_factor: float = 1.0
    """SQL's α counts twice."""
    extraction_divergence: str = "soft-chi2"
    """f of the extraction."""
    split_constant: bool = True
    """Give the constant of μ a parameter of its own (see `losses.extraction_losses`)."""


class State(NamedTuple):
    params: Params
    target_q: Params
    optimiser: Any
    multiplier: jax.Array
    """λ >= 0, in the units of the logs."""
    cost: jax.Array
    """Of an episode, as estimated of late."""


def init(config: Config, hypers: Hypers, logs: Logs, key: jax.Array) -> State:
    s, a = logs.transitions.observations[:1], logs.transitions.actions[:1]
    params = semidice.init_params(config, s, a, key)
    if config.estimate == "networks":
        a_key, mu_key = jax.random.split(jax.random.fold_in(key, 1))
        params |= {
            "a": config.critic().init(a_key, s),
            "mu": config.critic().init(mu_key, s),
            "constant": jnp.zeros(()),
        }
    return State(params, params["q"], ADAM.init(params), jnp.asarray(hypers.multiplier, jnp.float32), jnp.zeros(()))


def update(
    config: Config, hypers: Hypers, logs: Logs, state: State, step: jax.Array, key: jax.Array
) -> tuple[State, Metrics]:
    batch_key, initial_key = jax.random.split(key)
    batch = draw_batch(logs, batch_key, config.batch_size, logs.rows)
    initial = draw_initial(logs, initial_key, config.batch_size)
    held = state.params | {"target_q": state.target_q}
    rewards = penalised_rewards(logs.units, batch, state.multiplier, hypers.discount)
    alpha = config.alpha_factor * hypers.alpha

    def total_loss(params: Params) -> tuple[jax.Array, tuple[dict[str, jax.Array], jax.Array, jax.Array]]:
        terms, w = semidice.terms(config, params, held, batch, rewards, alpha, hypers.discount, config.balance)
        state_correction = jnp.ones_like(w)
        if config.estimate == "networks":
            mean_one = w / jnp.maximum(w.mean(), TINY)
            extracted, state_correction = _extraction(config, hypers, params, batch, initial, mean_one)
            terms = terms | extracted
        return jnp.sum(jnp.stack(list(terms.values()))), (terms, w, state_correction)

    gradients, (terms, w_policy, w_state) = jax.grad(total_loss, has_aux=True)(state.params)
    params, optimiser = descend(config, hypers, state.params, gradients, state.optimiser, step)
    target_q = optax.incremental_update(params["q"], state.target_q, hypers.target_rate)
    w = w_state * w_policy
    per_step = losses.corrected_mean(w, logs.raw_costs(batch), batch.terminals, hypers.discount)
    cost = recent(state.cost, per_episode(hypers, per_step))
    multiplier = state.multiplier
    if config.estimate != "none":
        violation = (cost - hypers.episode_limit) / hypers.episode_per_step
        if config.standardise:
            violation = in_deviations(hypers, logs, violation)
        multiplier = ascended(multiplier, violation, hypers.multiplier_rate)
    metrics = terms | cost_metrics(hypers, logs, multiplier, cost) | weight_metrics(w)
    metrics["mean_policy_correction"] = w_policy.mean()
    return State(params, target_q, optimiser, multiplier, cost), metrics


def _extraction(
    config: Config, hypers: Hypers, params: Params, batch: Batch, initial: jax.Array, w: jax.Array
) -> tuple[dict[str, jax.Array], jax.Array]:
    """The losses of A and μ on a batch, and w(s)."""
    f = divergences.by_name(config.extraction_divergence)
    n = config.batch_size
    constant = params["constant"] if config.split_constant else jnp.zeros(())
    a = config.critic().apply(params["a"], batch.observations)[0]
    stacked = jnp.concatenate([batch.observations, batch.next_observations, initial])
    mu = config.critic().apply(params["mu"], stacked)[0]
    parts = (mu[:n], mu[n : 2 * n], mu[2 * n :])
    return losses.extraction_losses(f, a, parts, constant, w, 1 - batch.terminals, hypers.discount)


def corrections(config: Config, hypers: Hypers, logs: Logs | None, state: State, batch: Batch) -> jax.Array:
    """w(a|s), one for each row."""
    alpha = config.alpha_factor * hypers.alpha
    return semidice.policy_correction(
        config, state.params["nu"], state.target_q, batch.observations, batch.actions, alpha
    )
