"""Logs of an agent while it learns: whole episodes of snapshots of it, from untrained to trained.

Such a mixture is what offline methods are tested on: some of it good, much of it mediocre, all of it on one task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from corsdice.data.dataset import Dataset, concatenate
from corsdice.envs.fleet import Fleet, whole_episodes
from corsdice.envs.ppo import Agent, Settings, start, update
from corsdice.errors import UserError

if TYPE_CHECKING:
    import gymnasium

    Env = gymnasium.Env[Any, Any]

Progress = Callable[[float, int], None]
"""Told the mean return of late, and how many steps the simulator took since it was last told."""


def collect_snapshots(
    task: str,
    steps: int = 1_000_000,
    transitions: int = 200_000,
    snapshots: int = 12,
    penalty: float = 0.0,
    seed: int = 0,
    progress: Progress = lambda latest, steps: None,
) -> Dataset:
    """Trains an agent of a velocity task for `steps` and logs `snapshots` of it, evenly spaced, in their order.

    Each gives about the same share of the transitions, as whole episodes of its stochastic policy. The first has not
    learned at all, the last, or only one, is final. The agent learns from reward - penalty cost; the logs hold both
    apart.
    """
    import gymnasium

    from corsdice.envs.mujoco import velocity_task

    name, settings = velocity_task(task).id, Settings(steps)
    if snapshots > settings.iterations + 1:
        least = (snapshots - 1) * settings.envs * settings.rollout
        raise UserError(f"{steps} steps are too few for {snapshots} snapshots: train for {least} or keep fewer")
    envs = [gymnasium.make(name) for _ in range(settings.envs)]
    chosen = np.linspace(settings.iterations, 0, snapshots).round()
    kept = []
    for iteration, (agent, latest) in enumerate(train(envs, settings, seed, penalty)):
        if iteration in chosen:
            kept.append(agent)
        progress(latest, settings.envs * settings.rollout if iteration else 0)
    logs = log_agents(envs[0], kept, unused_key(seed, settings), transitions, settings, progress)
    for env in envs:
        env.close()
    return logs


def unused_key(seed: int, settings: Settings) -> jax.Array:
    """The first one that `train` does not use."""
    return jax.random.fold_in(jax.random.key(seed), settings.iterations)


def log_agents(
    env: Env, agents: Sequence[Agent], key: jax.Array, transitions: int, settings: Settings, progress: Progress
) -> Dataset:
    """Whole episodes of each agent's stochastic policy, in their order, about the same share of transitions each."""
    logs: list[Dataset] = []
    for i, agent in enumerate(agents):
        due = round(transitions * (i + 1) / len(agents)) - sum(part.transitions for part in logs)
        logs.append(whole_episodes(env, agent, jax.random.fold_in(key, i), due, settings))
        progress(float(logs[-1].episodes.sums(logs[-1].rewards).mean()), logs[-1].transitions)
    return concatenate(logs)


def train(
    envs: Sequence[Env], settings: Settings, seed: int = 0, penalty: float = 0.0
) -> Iterator[tuple[Agent, float]]:
    """The agent and the mean raw return of its latest episodes: before any training, then after each iteration."""
    fleet = Fleet(envs, seed)
    key = jax.random.key(seed)
    box: Any = envs[0].action_space
    learner = start(key, fleet.observations.shape[-1], box.shape[0], settings)
    yield learner.agent, fleet.latest[0]
    for iteration in range(settings.iterations):
        act_key, update_key = jax.random.split(jax.random.fold_in(key, iteration))
        batch = fleet.rollout(learner.agent, act_key, settings)
        learner = update(learner, batch, update_key, penalty, settings)
        yield learner.agent, fleet.latest[0]
