"""A saved policy in a simulator, embedded or Gymnasium's: what it really returns and costs."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from corsdice.envs.points import TASKS
from corsdice.envs.rollout import evaluate
from corsdice.errors import UserError
from corsdice.policy import Policy


def simulate(policy: Policy, env: str, episodes: int, seed: int = 0) -> dict[str, Any]:
    """Undiscounted sums over an episode, means with their standard errors."""
    if env in TASKS:
        task = TASKS[env]
        if policy.about["observation_shape"] != [task.observation_size]:
            raise UserError(f"the policy's observations have shape {policy.about['observation_shape']}, not {env}'s")
        truth = jax.device_get(evaluate(task, policy.act, policy.params, jax.random.key(seed), episodes))
        sums = truth.episode_return, truth.episode_return_se, truth.episode_cost, truth.episode_cost_se
        names = ("return", "return_se", "cost", "cost_se")
        return {name: float(value) for name, value in zip(names, sums, strict=True)} | {"episodes": episodes}
    returns, costs = np.array([_one_episode(policy, env, seed * 1_000_003 + i) for i in range(episodes)]).T
    return {
        "return": float(returns.mean()),
        "return_se": float(returns.std(ddof=1) / np.sqrt(episodes)),
        "cost": float(costs.mean()),
        "cost_se": float(costs.std(ddof=1) / np.sqrt(episodes)),
        "episodes": episodes,
    }


def _one_episode(policy: Policy, env: str, seed: int) -> tuple[float, float]:
    environment = _make(env)
    observation, _ = environment.reset(seed=seed)
    total_return = total_cost = 0.0
    ended, step = False, 0
    while not ended:
        action = policy.predict(observation, seed=seed + step)
        observation, reward, terminated, truncated, info = environment.step(action)
        if "cost" not in info:
            raise UserError(f'{env} gives no info["cost"]: wrap it so that every step does')
        total_return, total_cost = total_return + float(reward), total_cost + float(info["cost"])
        ended, step = terminated or truncated, step + 1
    environment.close()
    return total_return, total_cost


def _make(env: str) -> Any:
    try:
        import gymnasium
    except ImportError as error:
        known = ", ".join(TASKS)
        raise UserError(
            f"{env} is not embedded ({known}) and Gymnasium is not installed: pip install corsdice[gym]"
        ) from error
    try:
        return gymnasium.make(env)
    except (gymnasium.error.Error, ImportError) as error:
        raise UserError(f"cannot make {env}: {str(error).splitlines()[0]}") from error
