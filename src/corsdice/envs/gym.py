"""The embedded tasks as ordinary Gymnasium environments, with the cost in `info["cost"]`.

    gymnasium.make("corsdice.envs.gym:corsdice/point-circle-v0")

The time limit is Gymnasium's own wrapper, so that termination and truncation stay apart.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import numpy as np

from corsdice.envs.embedded import TASKS, task_by_name


class TaskEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One episode of a task at a time."""

    def __init__(self, task: str) -> None:
        self.task = task_by_name(task)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (self.task.observation_size,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (self.task.action_size,), np.float32)
        self._reset = jax.jit(self.task.reset)
        self._step = jax.jit(self.task.step)

    def _key(self) -> jax.Array:
        return jax.random.key(int(self.np_random.integers(2**31)))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._state = self._reset(self._key())
        return np.asarray(self._state), {"cost": 0.0}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        after = self._step(self._key(), self._state, np.asarray(action, np.float32))
        self._state = after.state
        info = {"cost": float(after.cost)}
        return np.asarray(after.state), float(after.reward), bool(after.terminated), False, info


for _task in TASKS.values():
    gymnasium.register(
        f"corsdice/{_task.name}-v0",
        entry_point="corsdice.envs.gym:TaskEnv",
        max_episode_steps=_task.horizon,
        kwargs={"task": _task.name},
    )
