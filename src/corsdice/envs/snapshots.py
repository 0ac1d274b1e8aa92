"""Logs of an agent while it learns: whole episodes of snapshots of it, from untrained to trained.

Such a mixture is what offline methods are tested on: some of it good, much of it mediocre, all of it on one task. The
environments are stepped in lockstep in this one process, and the policy acts for all of them in one call: the simulator
takes most of the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.data.dataset import Dataset, dataset_from
from corsdice.envs.ppo import Agent, Batch, Settings, act, start, update
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
    learned at all, the last is the final one. The agent learns from reward - penalty cost; the logs hold both apart.
    """
    import gymnasium

    from corsdice.envs.mujoco import velocity_task

    name, settings = velocity_task(task).id, Settings(steps)
    if snapshots > settings.iterations + 1:
        least = (snapshots - 1) * settings.envs * settings.rollout
        raise UserError(f"{steps} steps are too few for {snapshots} snapshots: train for {least} or keep fewer")
    envs = [gymnasium.make(name) for _ in range(settings.envs)]
    chosen = np.linspace(0, settings.iterations, snapshots).round()
    kept = []
    for iteration, (agent, latest) in enumerate(train(envs, settings, seed, penalty)):
        if iteration in chosen:
            kept.append(agent)
        progress(latest, settings.envs * settings.rollout if iteration else 0)
    logs: list[Dataset] = []
    key = jax.random.fold_in(jax.random.key(seed), settings.iterations)  # the first one that training did not use
    for i, agent in enumerate(kept):
        due = round(transitions * (i + 1) / snapshots) - sum(part.transitions for part in logs)
        logs.append(whole_episodes(envs[0], agent, jax.random.fold_in(key, i), due, settings))
        progress(float(logs[-1].episodes.sums(logs[-1].rewards).mean()), logs[-1].transitions)
    for env in envs:
        env.close()
    return Dataset(*(np.concatenate(parts) for parts in zip(*logs, strict=True)))


def train(
    envs: Sequence[Env], settings: Settings, seed: int = 0, penalty: float = 0.0
) -> Iterator[tuple[Agent, float]]:
    """The agent and the mean raw return of its latest episodes: before any training, then after each iteration."""
    fleet = Fleet(envs, seed)
    key = jax.random.key(seed)
    box: Any = envs[0].action_space
    learner = start(key, fleet.observations.shape[-1], box.shape[0], settings)
    yield learner.agent, fleet.latest_return
    for iteration in range(settings.iterations):
        act_key, update_key = jax.random.split(jax.random.fold_in(key, iteration))
        batch = fleet.rollout(learner.agent, act_key, settings)
        learner = update(learner, batch, update_key, penalty, settings)
        yield learner.agent, fleet.latest_return


class Fleet:
    """Environments stepped in lockstep; one whose episode has ended starts the next by itself."""

    def __init__(self, envs: Sequence[Env], seed: int) -> None:
        self.envs = envs
        self.observations = np.stack([env.reset(seed=seed * 1_000_003 + i)[0] for i, env in enumerate(envs)])
        self._so_far = np.zeros(len(envs))
        self._returns: deque[float] = deque(maxlen=100)

    @property
    def latest_return(self) -> float:
        """The mean over the latest episodes to end; not a number before the first has."""
        return float(np.mean(self._returns)) if self._returns else float("nan")

    def rollout(self, agent: Agent, key: jax.Array, settings: Settings) -> Batch:
        steps = []
        for t in range(settings.rollout):
            before, actions = self.observations, np.asarray(act(agent, key, t, self.observations, settings))
            steps.append((before, actions, *self._step(actions)))
        return Batch(*(jnp.asarray(np.stack(column)) for column in zip(*steps, strict=True)))

    def _step(self, actions: np.ndarray) -> list[np.ndarray]:
        """Rewards, costs, next observations, whether each terminated, and whether it ended."""
        taken = [step(env, into_box(env, action)) for env, action in zip(self.envs, actions, strict=True)]
        columns = [np.array(column) for column in zip(*taken, strict=True)]
        rewards, _, following, _, ended = columns
        self._so_far += rewards
        self.observations = following.copy()
        for i in np.flatnonzero(ended).tolist():
            self._returns.append(self._so_far[i])
            self._so_far[i] = 0.0
            self.observations[i], _ = self.envs[i].reset()
        return columns


def whole_episodes(env: Env, agent: Agent, key: jax.Array, transitions: int, settings: Settings) -> Dataset:
    """One episode of the stochastic policy after another, at least one, until there are `transitions` or a few more."""
    rows: list[tuple[Any, ...]] = []
    ended = True
    while len(rows) < max(transitions, 1) or not ended:
        if ended:
            observation, _ = env.reset()
        action = into_box(env, np.asarray(act(agent, key, len(rows), observation, settings)))
        reward, cost, following, terminated, ended = step(env, action)
        rows.append((observation, action, reward, cost, following, terminated, ended and not terminated))
        observation = following
    columns = (np.array(column) for column in zip(*rows, strict=True))
    return dataset_from(dict(zip(Dataset._fields, columns, strict=True)))


def step(env: Env, action: np.ndarray) -> tuple[float, float, np.ndarray, bool, bool]:
    """Reward, cost, next observation, whether the episode terminated, and whether it ended, be it by the time limit."""
    observation, reward, terminated, truncated, info = env.step(action)
    return float(reward), float(info["cost"]), observation, bool(terminated), bool(terminated or truncated)


def into_box(env: Env, action: np.ndarray) -> np.ndarray:
    box: Any = env.action_space
    return np.clip(action, box.low, box.high)
