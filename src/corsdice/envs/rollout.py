"""Episodes of a policy in a task, many at once, and what they are worth."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.costs import discounted_steps
from corsdice.envs.task import Task
from corsdice.errors import UserError

Policy = Callable[[Any, jax.Array, jax.Array], jax.Array]
"""(params, key, observation) -> action, pure. What differs between policies of a kind belongs into params, a pytree, so
that one compilation serves them all."""


class Rollout(NamedTuple):
    """Episodes side by side, [episodes, steps, ...]; `lived` marks the steps that happened."""

    observations: jax.Array
    actions: jax.Array
    rewards: jax.Array
    costs: jax.Array
    next_observations: jax.Array
    terminated: jax.Array
    lived: jax.Array


@partial(jax.jit, static_argnames=("task", "policy", "episodes", "steps"))
def rollout(
    task: Task, policy: Policy, params: Any, key: jax.Array, episodes: int, steps: int | None = None
) -> Rollout:
    """Runs `episodes` episodes of the policy; episode i depends on (key, i) alone."""
    act = partial(policy, params)
    return jax.vmap(lambda i: one_episode(task, act, jax.random.fold_in(key, i), steps))(jnp.arange(episodes))


def one_episode(
    task: Task, act: Callable[[jax.Array, jax.Array], jax.Array], key: jax.Array, steps: int | None = None
) -> Rollout:
    """One episode [steps, ...], up to the horizon unless said; after a termination nothing counts any more.

    A longer run begins with the steps of a shorter one. An action that is not finite earns and costs NaN, whatever the
    task makes of it: clipping would hide an infinite one, and a comparison with NaN, as costs are told by, one that is
    no number.
    """

    def step(carry: tuple[jax.Array, jax.Array], key: jax.Array) -> tuple[tuple[jax.Array, jax.Array], Rollout]:
        state, alive = carry
        policy_key, task_key = jax.random.split(key)
        wanted = act(policy_key, state)
        action = jnp.clip(wanted, -1, 1)
        after = task.step(task_key, state, action)
        reward, cost = (jnp.where(jnp.isfinite(wanted).all(), x, jnp.nan) for x in (after.reward, after.cost))
        row = Rollout(state, action, reward, cost, after.state, after.terminated, alive)
        return (after.state, alive & ~after.terminated), row

    start_key, steps_key = jax.random.split(key)
    carry = (task.reset(start_key), jnp.array(True))
    keys = jax.random.split(steps_key, task.horizon if steps is None else steps)
    return jax.lax.scan(step, carry, keys)[1]


class Sums(NamedTuple):
    """What each episode earns and costs, [episodes] each."""

    episode_return: np.ndarray
    episode_cost: np.ndarray
    discounted_return: np.ndarray
    discounted_cost: np.ndarray


class Truth(NamedTuple):
    """Monte Carlo means with their standard errors."""

    episode_return: float
    episode_return_se: float
    episode_cost: float
    episode_cost_se: float
    discounted_return: float
    discounted_return_se: float
    discounted_cost: float
    discounted_cost_se: float


def evaluate(
    task: Task, policy: Policy, params: Any, key: jax.Array, episodes: int = 1000, discount: float = 0.99
) -> Truth:
    """What the policy earns and costs; see `play`."""
    sums = play(task, policy, params, key, episodes, discount)
    return Truth(*(float(number) for each in sums for number in (each.mean(), each.std(ddof=1) / np.sqrt(episodes))))


def play(task: Task, policy: Policy, params: Any, key: jax.Array, episodes: int = 1000, discount: float = 0.99) -> Sums:
    """Sums over each episode: undiscounted up to the horizon, and Σ γ^t x of the process itself.

    A timeout is where observation stops, not where the process ends, so discounted sums run on until γ^t is next to
    nothing. An action, a return or a cost that is not finite is an error.
    """
    sums = Sums(*(np.asarray(each, np.float64) for each in _play(task, policy, params, key, episodes, discount)))
    if not np.isfinite(sums).all():
        raise UserError(
            f"the policy in {task.name} gives actions, or is given rewards or costs, that are not finite: "
            "it has no return and no cost"
        )
    return sums


@partial(jax.jit, static_argnames=("task", "policy", "episodes", "discount"))
def _play(task: Task, policy: Policy, params: Any, key: jax.Array, episodes: int, discount: float) -> list[jax.Array]:
    """One compiled program that keeps no observations: such runs are long."""
    steps = max(task.horizon, discounted_steps(discount))
    run = rollout(task, policy, params, key, episodes, steps)
    t = jnp.arange(steps)
    return [
        (jnp.where(run.lived, values, 0.0) * weight).sum(-1)
        for weight in (t < task.horizon, discount**t)
        for values in (run.rewards, run.costs)
    ]
