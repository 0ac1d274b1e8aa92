"""Environments that online agents learn in: stepped in lockstep in one process, one call of the policy for all."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.data.dataset import Dataset, dataset_from
from corsdice.envs.ppo import Agent, Batch, Settings, act

if TYPE_CHECKING:
    import gymnasium

    Env = gymnasium.Env[Any, Any]

LATEST = 30
"""Episodes that tell how an agent does of late."""


class Fleet:
    """Environments stepped in lockstep; one whose episode has ended starts the next by itself."""

    def __init__(self, envs: Sequence[Env], seed: int | Sequence[int]) -> None:
        self.envs = envs
        seeds = np.random.SeedSequence(seed).generate_state(len(envs)).tolist()  # 32 bits: more is too much for some
        self.observations = np.stack([env.reset(seed=each)[0] for env, each in zip(envs, seeds, strict=True)])
        self._so_far = np.zeros((len(envs), 2))
        self._sums: deque[np.ndarray] = deque(maxlen=LATEST)

    @property
    def latest(self) -> tuple[float, float]:
        """Mean return and cost of the latest episodes to end; not numbers before the first has."""
        means = np.mean(self._sums, 0) if self._sums else np.full(2, np.nan)
        return float(means[0]), float(means[1])

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
        rewards, costs, following, _, ended = columns
        self._so_far += np.stack([rewards, costs], -1)
        self.observations = following.copy()
        for i in np.flatnonzero(ended).tolist():
            self._sums.append(self._so_far[i].copy())
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
    return dataset_of(rows)


def dataset_of(rows: Sequence[tuple[Any, ...]]) -> Dataset:
    """From steps one after another, each in the order of a Dataset's columns."""
    columns = (np.array(column) for column in zip(*rows, strict=True))
    return dataset_from(dict(zip(Dataset._fields, columns, strict=True)))


def step(env: Env, action: np.ndarray) -> tuple[float, float, np.ndarray, bool, bool]:
    """Reward, cost, next observation, whether the episode terminated, and whether it ended, be it by the time limit."""
    observation, reward, terminated, truncated, info = env.step(action)
    return float(reward), float(info["cost"]), observation, bool(terminated), bool(terminated or truncated)


def into_box(env: Env, action: np.ndarray) -> np.ndarray:
    box: Any = env.action_space
    return np.clip(action, box.low, box.high)
