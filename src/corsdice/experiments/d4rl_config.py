"""The settings of `corsdice reproduce d4rl`. Light on purpose: nothing here imports JAX."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from corsdice.data.d4rl import D4RL_TASKS, D4rlTask, robot_of
from corsdice.errors import UserError
from corsdice.experiments.cells import hash_of
from corsdice.experiments.checks import at_least, positive, task_files

Unconstrained = Literal["semidice", "f-dvl", "odice", "sql", "xql", "optidice"]
WITH_BETA = ("f-dvl", "odice")
"""Of the others β is no parameter."""


@dataclass(frozen=True)
class D4rlTableConfig:
    """The table of appendix G.2: scores of the unconstrained methods on nine locomotion tasks (extra `mujoco`).

    The logs are made here, in D4RL's grades, unless --data names a file of D4RL. Run it again with the same options to
    go on from where it was stopped.
    """

    out: Path = Path("out/d4rl")
    """Where the logs, the runs, results.csv and summary.json go. What is done is not done again."""
    tasks: tuple[D4rlTask, ...] = D4RL_TASKS
    algorithms: tuple[Unconstrained, ...] = get_args(Unconstrained)
    data: tuple[str, ...] = ()
    """Logs to use instead of those made here, as task=file: D4RL's own, or others of the same form."""
    alpha: float = 1.0
    """How closely to stay with the logs, in the unit of the raw reward, as the paper has it."""
    beta: float = 0.5
    """Trade-off of f-DVL and ODICE."""
    seeds: int = 3
    steps: int = 20_000
    """Updates of each policy; a million in the paper."""
    widths: tuple[int, ...] = (256, 256)
    batch_size: int = 256
    layer_norm: bool = True
    """In the critics, as in the paper; without it XQL's weights overflow at this α."""
    episodes: int = 10
    """Simulated episodes of each policy."""
    collect_steps: int = 1_000_000
    """Steps of the agent whose snapshots make the logs of a robot."""
    collect_transitions: int = 200_000
    """Logged in each grade, about; a million in D4RL but for medium-replay, with fewer."""
    collect_snapshots: int = 12
    """In medium-replay."""
    workers: int = min(2, os.cpu_count() or 1)
    """Processes that simulate; the results do not depend on it."""

    def __post_init__(self) -> None:
        at_least(1, seeds=self.seeds, steps=self.steps, batch_size=self.batch_size, workers=self.workers)
        at_least(1, collect_steps=self.collect_steps, collect_transitions=self.collect_transitions)
        at_least(2, episodes=self.episodes, collect_snapshots=self.collect_snapshots)
        positive(alpha=(self.alpha,), widths=tuple(map(float, self.widths)))
        if not 0 < self.beta < 1:
            raise UserError(f"--beta must lie strictly between 0 and 1, got {self.beta}")
        for option, names in (("tasks", self.tasks), ("algorithms", self.algorithms)):
            if not names or len(set(names)) < len(names):
                raise UserError(f"--{option} must name at least one, and none twice")
        for file in self.files().values():
            if not file.is_file():
                raise UserError(f"no file {file}: check --data")

    def files(self) -> dict[str, Path]:
        """The file that --data names for a task."""
        return task_files(self.data, self.tasks)

    def collection(self, robot: str) -> dict[str, object]:
        """All that the logs made here of a robot depend on, in JSON's types."""
        return {
            "robot": robot,
            "steps": self.collect_steps,
            "transitions": self.collect_transitions,
            "snapshots": self.collect_snapshots,
        }

    def asked(self, task: str, algorithm: str) -> dict[str, object]:
        """All that the scores of a task with an algorithm depend on, in JSON's types."""
        file = self.files().get(task)
        return {
            "alpha": self.alpha,
            "beta": self.beta if algorithm in WITH_BETA else None,
            "seeds": self.seeds,
            "steps": self.steps,
            "widths": list(self.widths),
            "batch_size": self.batch_size,
            "layer_norm": self.layer_norm,
            "episodes": self.episodes,
            "logs": hash_of(file) if file else self.collection(robot_of(task).name),
        }
