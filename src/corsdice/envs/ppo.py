"""Proximal policy optimisation (Schulman et al. 2017): an online agent, by which logs are made.

The whole update is one program. Observations are normalised by their running mean and variance, rewards by the running
deviation of the discounted return. `fleet.py` steps the environments.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from corsdice.networks import MLP

RANGE = 10.0
"""Normalised observations are clipped to ± this: a rare one must not throw the policy."""


@dataclass(frozen=True)
class Settings:
    """Of the training; the defaults suit MuJoCo's walkers for a million steps."""

    steps: int | None = None
    """Of all environments together; the learning rate falls to zero over them. None: it stays, and there is no end."""
    envs: int = 16
    rollout: int = 128
    """Steps of each environment between updates."""
    epochs: int = 10
    minibatches: int = 32
    discount: float = 0.99
    decay: float = 0.95
    """λ of the generalised advantage estimate."""
    clip: float = 0.2
    learning_rate: float = 3e-4
    gradient_norm: float = 0.5
    log_std: float = -0.5
    """Of the policy at the start."""
    widths: tuple[int, ...] = (64, 64)

    @property
    def iterations(self) -> int:
        if self.steps is None:
            raise ValueError("training without end has no number of iterations")
        return max(1, round(self.steps / (self.envs * self.rollout)))


class Moments(NamedTuple):
    """Number, mean and variance of the rows seen so far."""

    rows: jax.Array
    mean: jax.Array
    variance: jax.Array


class Agent(NamedTuple):
    """All that acting needs: a snapshot."""

    params: dict[str, Any]
    """mean and value: perceptrons; log_std [A]."""
    observations: Moments


class Learner(NamedTuple):
    agent: Agent
    optimiser: Any
    returns: Moments
    """Of the discounted return so far in an episode."""
    earned: jax.Array
    """[E] that return, where each environment stands."""


class Batch(NamedTuple):
    """What happened in `rollout` steps of E environments: [T, E, ...]."""

    observations: jax.Array
    actions: jax.Array
    """As drawn; the environments saw them clipped."""
    rewards: jax.Array
    costs: jax.Array
    next_observations: jax.Array
    terminated: jax.Array
    ended: jax.Array
    """Terminated or timed out."""


def include(moments: Moments, rows: jax.Array) -> Moments:
    """The moments with rows [N, ...] added, by the formula of Chan, Golub and LeVeque."""
    total = moments.rows + len(rows)
    old, new = moments.rows / total, len(rows) / total
    shift = rows.mean(0) - moments.mean
    variance = old * moments.variance + new * rows.var(0) + old * new * shift**2
    return Moments(total, moments.mean + new * shift, variance)


def normalised(moments: Moments, rows: jax.Array) -> jax.Array:
    return jnp.clip((rows - moments.mean) / jnp.sqrt(moments.variance + 1e-8), -RANGE, RANGE)


def advantages(
    rewards: jax.Array,
    values: jax.Array,
    next_values: jax.Array,
    terminated: jax.Array,
    ended: jax.Array,
    discount: float,
    decay: float,
) -> jax.Array:
    """Generalised advantage estimates [T, E]: A_t = δ_t + γλ A_{t+1} with δ_t = r_t + γ V(s_{t+1}) - V(s_t).

    After a termination there is no V(s_{t+1}); after a timeout there is, but A_{t+1} belongs to another episode.
    """
    errors = rewards + discount * jnp.where(terminated, 0.0, next_values) - values

    def back(following: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        error, end = now
        advantage = error + discount * decay * jnp.where(end, 0.0, following)
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(values[0]), (errors, ended), reverse=True)[1]


def _mean(params: dict[str, Any], inputs: jax.Array, settings: Settings) -> jax.Array:
    return MLP(settings.widths, len(params["log_std"])).apply(params["mean"], inputs)


def _value(params: dict[str, Any], inputs: jax.Array, settings: Settings) -> jax.Array:
    return MLP(settings.widths, 1).apply(params["value"], inputs)[..., 0]


def _log_likelihood(params: dict[str, Any], inputs: jax.Array, actions: jax.Array, settings: Settings) -> jax.Array:
    mean, std = _mean(params, inputs, settings), jnp.exp(params["log_std"])
    return jax.scipy.stats.norm.logpdf(actions, mean, std).sum(-1)


@partial(jax.jit, static_argnames="settings")
def act(agent: Agent, key: jax.Array, step: int, observations: jax.Array, settings: Settings) -> jax.Array:
    """Actions [..., A] drawn from the Gaussian policy, not yet clipped to any box; `step` varies the key."""
    mean = _mean(agent.params, normalised(agent.observations, observations), settings)
    noise = jax.random.normal(jax.random.fold_in(key, step), mean.shape)
    return mean + jnp.exp(agent.params["log_std"]) * noise


def _optimiser(settings: Settings) -> Any:
    rate: Any = settings.learning_rate
    if settings.steps is not None:
        rate = optax.linear_schedule(rate, 0.0, settings.iterations * settings.epochs * settings.minibatches)
    return optax.chain(optax.clip_by_global_norm(settings.gradient_norm), optax.adam(rate, eps=1e-5))


@partial(jax.jit, static_argnames=("observation_size", "action_size", "settings"))
def start(key: jax.Array, observation_size: int, action_size: int, settings: Settings) -> Learner:
    mean_key, value_key = jax.random.split(key)
    row = jnp.zeros(observation_size)
    params = {
        "mean": MLP(settings.widths, action_size).init(mean_key, row),
        "value": MLP(settings.widths, 1).init(value_key, row),
        "log_std": jnp.full(action_size, settings.log_std, jnp.float32),
    }
    return Learner(
        agent=Agent(params, Moments(jnp.zeros(()), row, jnp.ones(observation_size))),
        optimiser=_optimiser(settings).init(params),
        returns=Moments(jnp.zeros(()), jnp.zeros(()), jnp.ones(())),
        earned=jnp.zeros(settings.envs),
    )


@partial(jax.jit, static_argnames="settings")
def update(learner: Learner, batch: Batch, key: jax.Array, penalty: jax.Array | float, settings: Settings) -> Learner:
    """One iteration on what the agent has just done, with the reward r - penalty c."""
    agent, gamma = learner.agent, settings.discount
    rewards = batch.rewards - penalty * batch.costs

    def earn(earned: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reward, end = now
        earned = gamma * earned + reward
        return jnp.where(end, 0.0, earned), earned

    earned, returns_so_far = jax.lax.scan(earn, learner.earned, (rewards, batch.ended))
    returns = include(learner.returns, returns_so_far.reshape(-1))
    rewards = rewards / jnp.sqrt(returns.variance + 1e-8)

    inputs = normalised(agent.observations, batch.observations)
    values = _value(agent.params, inputs, settings)
    next_values = _value(agent.params, normalised(agent.observations, batch.next_observations), settings)
    better = advantages(rewards, values, next_values, batch.terminated, batch.ended, gamma, settings.decay)
    old = _log_likelihood(agent.params, inputs, batch.actions, settings)
    every_row = jax.tree.map(
        lambda x: x.reshape(-1, *x.shape[2:]), (inputs, batch.actions, old, better, better + values)
    )

    def loss(params: dict[str, Any], rows: tuple[jax.Array, ...]) -> jax.Array:
        inputs, actions, old, better, target = rows
        better = (better - better.mean()) / (better.std() + 1e-8)
        ratio = jnp.exp(_log_likelihood(params, inputs, actions, settings) - old)
        clipped = jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
        surrogate = jnp.minimum(ratio * better, clipped * better)
        return -surrogate.mean() + 0.5 * jnp.square(_value(params, inputs, settings) - target).mean()

    def descend(carry: tuple[Any, Any], chosen: jax.Array) -> tuple[tuple[Any, Any], None]:
        params, state = carry
        gradient = jax.grad(loss)(params, jax.tree.map(lambda x: x[chosen], every_row))
        change, state = _optimiser(settings).update(gradient, state)
        return (optax.apply_updates(params, change), state), None

    shuffled = jax.random.uniform(key, (settings.epochs, better.size)).argsort(-1)
    chosen = shuffled.reshape(settings.epochs * settings.minibatches, -1)
    (params, optimiser), _ = jax.lax.scan(descend, (agent.params, learner.optimiser), chosen)
    seen = include(agent.observations, batch.observations.reshape(-1, batch.observations.shape[-1]))
    return Learner(Agent(params, seen), optimiser, returns, earned)
