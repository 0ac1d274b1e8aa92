"""Logs of scripted drivers, from safe and slow to fast and reckless."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.data.dataset import Dataset, dataset_from
from corsdice.envs.rollout import Rollout, one_episode
from corsdice.envs.task import Task

NOISE = 0.3
"""Standard deviation of what a driver adds to its action, so that the logs cover what lies around it."""


@partial(jax.jit, static_argnames=("task", "episodes"))
def drive(task: Task, key: jax.Array, episodes: int) -> Rollout:
    """One episode of each of `episodes` drivers, whose styles are spread evenly over [0, 1]."""

    def episode(i: jax.Array) -> Rollout:
        style = (i + 0.5) / episodes

        def noisy(key: jax.Array, state: jax.Array) -> jax.Array:
            return task.controller(style, state) + NOISE * jax.random.normal(key, (task.action_size,))

        return one_episode(task, noisy, jax.random.fold_in(key, i))

    return jax.vmap(episode)(jnp.arange(episodes))


def collect(task: Task, seed: int = 0, episodes: int = 1000) -> Dataset:
    """A dataset of scripted drivers: the steps that happened, in order; an episode that did not terminate timed out."""
    run = jax.device_get(drive(task, jax.random.key(seed), episodes))
    lived = run.lived
    last_step = np.broadcast_to(np.arange(task.horizon) == task.horizon - 1, lived.shape)
    return dataset_from(
        {
            "observations": run.observations[lived],
            "actions": run.actions[lived],
            "rewards": run.rewards[lived],
            "costs": run.costs[lived],
            "next_observations": run.next_observations[lived],
            "terminals": run.terminated[lived],
            "timeouts": last_step[lived],
        }
    )
