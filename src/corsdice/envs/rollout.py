"""Episodes of a policy in a task, many at once, and what they are worth."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from corsdice.envs.task import Task

Policy = Callable[[Any, jax.Array, jax.Array], jax.Array]
"""(params, key, observation) -> action, pure. What differs between policies of a kind belongs into params, a pytree, so
that one compilation serves them all."""


class Rollout(NamedTuple):
    """Episodes side by side, [episodes, horizon, ...]; `lived` marks the steps that happened."""

    observations: jax.Array
    actions: jax.Array
    rewards: jax.Array
    costs: jax.Array
    next_observations: jax.Array
    terminated: jax.Array
    lived: jax.Array


@partial(jax.jit, static_argnames=("task", "policy", "episodes"))
def rollout(task: Task, policy: Policy, params: Any, key: jax.Array, episodes: int) -> Rollout:
    """Runs `episodes` episodes of the policy; episode i depends on (key, i) alone."""
    act = partial(policy, params)
    return jax.vmap(lambda i: one_episode(task, act, jax.random.fold_in(key, i)))(jnp.arange(episodes))


def one_episode(task: Task, act: Callable[[jax.Array, jax.Array], jax.Array], key: jax.Array) -> Rollout:
    """One episode [horizon, ...]; after a termination nothing counts any more."""

    def step(carry: tuple[jax.Array, jax.Array], key: jax.Array) -> tuple[tuple[jax.Array, jax.Array], Rollout]:
        state, alive = carry
        policy_key, task_key = jax.random.split(key)
        action = jnp.clip(act(policy_key, state), -1, 1)
        after = task.step(task_key, state, action)
        row = Rollout(state, action, after.reward, after.cost, after.state, after.terminated, alive)
        return (after.state, alive & ~after.terminated), row

    start_key, steps_key = jax.random.split(key)
    carry = (task.reset(start_key), jnp.array(True))
    return jax.lax.scan(step, carry, jax.random.split(steps_key, task.horizon))[1]


class Truth(NamedTuple):
    """Monte Carlo means with their standard errors."""

    episode_return: jax.Array
    episode_return_se: jax.Array
    episode_cost: jax.Array
    episode_cost_se: jax.Array
    discounted_return: jax.Array
    discounted_return_se: jax.Array
    discounted_cost: jax.Array
    discounted_cost_se: jax.Array


def evaluate(
    task: Task, policy: Policy, params: Any, key: jax.Array, episodes: int = 1000, discount: float = 0.99
) -> Truth:
    """What the policy earns and costs, undiscounted over the episode and discounted."""
    run = rollout(task, policy, params, key, episodes)
    weights = discount ** jnp.arange(task.horizon)
    numbers = []
    for weight in (jnp.ones(task.horizon), weights):
        for values in (run.rewards, run.costs):
            sums = (jnp.where(run.lived, values, 0.0) * weight).sum(-1)
            numbers += [sums.mean(), sums.std(ddof=1) / jnp.sqrt(episodes)]
    return Truth(*numbers)
