"""CORSDICE (Algorithm 1 of the paper): SemiDICE on r - λc, and λ moved by an estimate of the cost.

The estimate is the choice that matters:

- "closed-form" speaks of the actor that ships and of the undiscounted episode, by extraction in closed form or, where
  one can be believed, by a model (`episode_cost`);
- "networks" is the paper's: A and μ extract w(s), and w(s) w(a|s) speaks of π_w and of the discounted cost;
- "naive" takes w(a|s) for the stationary correction, which it is not: the baseline that fails;
- "none" leaves λ where it is, which is SemiDICE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from corsdice import divergences, losses
from corsdice.algorithms import semidice
from corsdice.algorithms.choice import Choice, better, judge, unjudged
from corsdice.algorithms.contract import (
    ADAM,
    Hypers,
    Metrics,
    Params,
    cost_metrics,
    decay,
    descend,
    in_deviations,
    move_multiplier,
    per_episode,
    recent,
    weight_metrics,
)
from corsdice.algorithms.episode_cost import EpisodeCost, episode_cost, unknown_cost, upper
from corsdice.algorithms.logs import Batch, Logs, draw_batch, draw_initial

TINY = 1e-6
"""Instead of the mean of w(a|s), where no row of a batch has any."""


@dataclass(frozen=True)
class Config(semidice.Config):
    estimate: Literal["closed-form", "networks", "naive", "none"] = "closed-form"
    """What tells λ the cost."""
    margin: float = 0.1
    """Aim this share below the limit: the closed form's error is of that order, and a policy at the limit itself
    would be over it half of the time."""
    extraction_divergence: str = "soft-chi2"
    """f of the extraction by networks."""
    split_constant: bool = True
    """Give the constant of μ a parameter of its own (see `losses.extraction_losses`)."""
    damping: float = 0.5
    """How much of the violation itself is added to λ, beside its sum over the steps: the policy follows λ late, and by
    the sum alone λ would swing about where it should be."""
    estimate_every: int = 400
    """Steps between two estimates in closed form."""
    use_model: bool = True
    """Take what a learned model imagines of the actor in place of the closed form, where it can be believed."""

    @property
    def needs_model(self) -> bool:
        return self.use_model and self.estimate == "closed-form"


class State(NamedTuple):
    learned: Params
    target_q: Params
    optimiser: Any
    multiplier: jax.Array
    """λ >= 0, in standard units, but for what `damped` adds."""
    cost: EpisodeCost
    """The last estimate."""
    choice: Choice
    """What ships."""

    @property
    def params(self) -> Params:
        return self.learned | {"actor": self.choice.actor, "nu": self.choice.nu}


def init(config: Config, hypers: Hypers, logs: Logs, key: jax.Array) -> State:
    params = semidice.init_params(config, logs, key)
    if config.estimate == "networks":
        a_key, mu_key = jax.random.split(jax.random.fold_in(key, 1))
        s = logs.transitions.observations[:1]
        params |= {
            "a": config.critic().init(a_key, s),
            "mu": config.critic().init(mu_key, s),
            "constant": jnp.zeros(()),
        }
    multiplier = jnp.asarray(hypers.multiplier, jnp.float32)
    choice = unjudged(params["actor"], params["nu"], params["q"])
    return State(params, params["q"], ADAM.init(params), multiplier, unknown_cost(), choice)


def update(
    config: Config, hypers: Hypers, logs: Logs, state: State, step: jax.Array, key: jax.Array
) -> tuple[State, Metrics]:
    batch_key, initial_key, actor_key = jax.random.split(key, 3)
    batch = draw_batch(logs, batch_key, config.batch_size, logs.rows)
    initial = draw_initial(logs, initial_key, config.batch_size)
    held = state.learned | {"target_q": state.target_q}
    multiplier = damped(config, hypers, logs, state)

    def total_loss(params: Params) -> tuple[jax.Array, tuple[dict[str, jax.Array], jax.Array, jax.Array]]:
        semi = semidice.terms(config, hypers, logs, params, held, multiplier, batch)
        terms, w = semi.losses, semi.policy_correction
        state_correction = jnp.ones_like(w)
        if config.estimate == "networks":
            extracted, state_correction = _extraction(
                config, hypers, params, batch, initial, w / jnp.maximum(w.mean(), TINY)
            )
            terms = terms | extracted
        return jnp.sum(jnp.stack(list(terms.values()))), (terms, w, state_correction)

    gradients, (terms, w_policy, w_state) = jax.grad(total_loss, has_aux=True)(state.learned)
    params, optimiser = descend(config, hypers, state.learned, gradients, state.optimiser, step)
    target_q = optax.incremental_update(params["q"], state.target_q, hypers.target_rate)
    w = w_state * w_policy
    latest = unjudged(params["actor"], params["nu"], target_q)
    if config.estimate == "closed-form":
        now = (step % config.estimate_every == 0) | (step == config.steps - 1)
        clone = config.clone(batch.actions.shape[-1])
        cost = jax.lax.cond(now, lambda: episode_cost(clone, logs, params["actor"], actor_key), lambda: state.cost)
        violation = excess(config, hypers, logs, cost)
        latest = judged(config, hypers, logs, latest, cost, step, now)
    else:
        per_step = losses.corrected_mean(w, logs.raw_costs(batch), batch.terminals, hypers.discount)
        cost = unknown_cost()._replace(value=recent(state.cost.value, per_episode(hypers, per_step)))
        violation = (cost.value - hypers.episode_limit) / hypers.episode_per_step
    choice = better(state.choice, latest)
    after = state._replace(learned=params, target_q=target_q, optimiser=optimiser, cost=cost, choice=choice)
    if config.estimate != "none":
        # As fast as the networks that have to follow it.
        slowing = hypers._replace(multiplier_rate=hypers.multiplier_rate * decay(config, step))
        after = after._replace(multiplier=move_multiplier(config, slowing, logs, state.multiplier, violation))
    metrics = terms | cost_metrics(hypers, logs, multiplier, cost.value) | weight_metrics(w)
    if config.estimate == "closed-form":
        metrics["doubt"] = cost.doubt
    metrics["mean_policy_correction"] = w_policy.mean()
    return after, metrics


def excess(config: Config, hypers: Hypers, logs: Logs, cost: EpisodeCost) -> jax.Array:
    """By how much an episode is over what is aimed at, a raw cost a step.

    With a standard error more: of several estimates what ships has the luckiest.
    """
    return (upper(cost) - (1 - config.margin) * hypers.episode_limit) / len(logs.episode)


def judged(
    config: Config, hypers: Hypers, logs: Logs, policy: Choice, cost: EpisodeCost, step: jax.Array, now: jax.Array
) -> Choice:
    """With the merit that an estimate made now gives it, in a run's second half."""
    return judge(policy, excess(config, hypers, logs, cost), cost.returned, now & (step >= config.steps // 2))


def damped(config: Config, hypers: Hypers, logs: Logs, state: State) -> jax.Array:
    """The λ that the policy sees: with a term that answers to the last estimate at once (Stooke et al., 2020)."""
    if config.estimate != "closed-form":
        return state.multiplier
    relative = jnp.clip(in_deviations(hypers, logs, excess(config, hypers, logs, state.cost)), -1.0, 1.0)
    return jnp.maximum(0.0, state.multiplier + config.damping * hypers.alpha / (1 - hypers.discount) * relative)


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


def corrections(config: Config, hypers: Hypers, logs: Logs, state: State, batch: Batch) -> jax.Array:
    """w(a|s), one for each row."""
    return semidice.policy_correction(config, hypers, state.choice.nu, state.choice.q, batch)
