"""Logs in three grades, as D4RL has them (Fu et al. 2020), of one agent while it learns:

    medium         the agent when it has come MEDIUM of the way from its first return to its final one
    medium-replay  snapshots of it, from untrained to medium
    medium-expert  one half medium, the other the final agent

D4RL's agents are trained by SAC, for longer, in an older MuJoCo: these are not its data, and the final agent here is no
expert by its scores.
"""

from __future__ import annotations

from contextlib import ExitStack, closing

import jax
import numpy as np

from corsdice.data.dataset import Dataset
from corsdice.envs.ppo import Agent, Settings
from corsdice.envs.snapshots import Progress, log_agents, train, unused_key
from corsdice.errors import UserError

MEDIUM = 0.4


def collect_grades(
    task: str,
    steps: int = 1_000_000,
    transitions: int = 200_000,
    snapshots: int = 12,
    seed: int = 0,
    progress: Progress = lambda latest, steps: None,
) -> dict[str, Dataset]:
    """Trains an agent of a velocity task, on its reward alone, and logs about so many `transitions` in each grade."""
    import gymnasium

    from corsdice.envs.mujoco import velocity_task

    settings = Settings(steps)
    agents: list[Agent] = []
    returns: list[float] = []
    with ExitStack() as stack:
        envs = [stack.enter_context(closing(gymnasium.make(velocity_task(task).id))) for _ in range(settings.envs)]
        for agent, latest in train(envs, settings, seed):
            agents.append(agent)
            returns.append(latest)
            progress(latest, settings.envs * settings.rollout if len(agents) > 1 else 0)
        medium = medium_place(returns)
        replayed = np.unique(np.linspace(0, medium, snapshots).round().astype(int))
        chosen = {
            "medium": [agents[medium]],
            "medium-replay": [agents[i] for i in replayed],
            "medium-expert": [agents[medium], agents[-1]],
        }
        key = unused_key(seed, settings)
        return {
            grade: log_agents(envs[0], kept, jax.random.fold_in(key, i), transitions, settings, progress)
            for i, (grade, kept) in enumerate(chosen.items())
        }


def medium_place(returns: list[float]) -> int:
    """Where an agent with these returns of late, not numbers before its first episode has ended, is medium."""
    known = [value for value in returns if np.isfinite(value)]
    if not known:
        raise UserError("no episode ended while the agent was trained: train it for more steps")
    enough = known[0] + MEDIUM * (known[-1] - known[0])
    return next(place for place, value in enumerate(returns) if value >= enough)
