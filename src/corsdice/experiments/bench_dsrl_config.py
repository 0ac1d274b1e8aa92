"""The settings of `corsdice bench dsrl`. Light on purpose: nothing here imports JAX."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from corsdice.data.dsrl import DSRL_TASKS, find_dsrl_task
from corsdice.errors import UserError
from corsdice.experiments.cells import hash_of
from corsdice.experiments.checks import at_least, distinct, positive, task_files
from corsdice.experiments.configs import AlgorithmName, EmbeddedTask
from corsdice.experiments.where import Where

EMBEDDED = get_args(EmbeddedTask)
EMBEDDED_LIMITS, EMBEDDED_TIGHT_LIMIT = (10.0, 20.0, 40.0), 5.0
"""Those of DSRL's Bullet tasks, whose idea the embedded ones follow."""
WITHOUT_ALPHA = ("bc-all", "bc-safe", "bcq-lag", "bear-lag", "cpq", "d-bc-all", "d-bc-safe")
"""Nothing in them depends on α."""
FAMILIES = ("corsdice", "d-corsdice")
"""Of several α, among which a limit chooses: together they are one member."""
ADVANCED_TASKS = (
    *(f"Car{task}{level}" for task in ("Button", "Goal", "Push") for level in (1, 2)),
    *("SwimmerVelocity", "AntVelocity", "HalfCheetahVelocity"),
    *(f"{robot}{task}" for task in ("Run", "Circle") for robot in ("Ant", "Ball", "Car", "Drone")),
    *(f"{road}{traffic}" for road in ("easy", "medium", "hard") for traffic in ("sparse", "mean", "dense")),
)
"""Of the paper's Table 3."""


@dataclass(frozen=True)
class ProtocolConfig(Where):
    """What policies are trained on, estimated and simulated, for each of some tasks and cost limits."""

    out: Path = Path("out/dsrl")
    """Where the runs, results.csv, summary.json and table.csv, .tex and .html go. What is done is not done again."""
    tasks: tuple[str, ...] = ()
    """By any of their names, all 38 of DSRL unless said; or embedded ones (point-circle, point-run, point-ridge)."""
    limits: tuple[float, ...] = ()
    """What an episode may cost, undiscounted, in every task; a task's own three unless said."""
    tight: bool = False
    """A task's one tight limit, 10 or 5, instead."""
    alphas: tuple[float, ...] = (0.03, 0.3)
    """How closely to stay with the logs. Of a family a limit chooses among them; of others which one is reported is the
    selection's business. Clones and actor-critics have none."""
    seeds: int = 5
    steps: int = 20_000
    """Updates of each member; 100,000 in DSRL, a million in the paper."""
    widths: tuple[int, ...] = (256, 256)
    batch_size: int = 256
    episodes: int = 20
    """Simulated episodes of each policy."""
    data: tuple[str, ...] = ()
    """Logs to use instead of DSRL's own, as task=file."""
    logged_episodes: int = 1000
    """Of an embedded task, whose logs are made here."""
    workers: int = min(2, os.cpu_count() or 1)
    """Processes that simulate; the results do not depend on it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, seeds=self.seeds, steps=self.steps, batch_size=self.batch_size, workers=self.workers)
        at_least(2, episodes=self.episodes, logged_episodes=self.logged_episodes)
        positive(alphas=self.alphas, widths=tuple(map(float, self.widths)))
        for limit in self.limits:
            at_least(0, limits=limit)
        if self.limits and self.tight:
            raise UserError("--limits and --tight exclude each other: leave one out")
        distinct(tasks=self.names())
        self.files()

    def names(self) -> tuple[str, ...]:
        """The tasks, each by its short name."""
        return tuple(map(task_name, self.tasks)) or tuple(DSRL_TASKS)

    def files(self) -> dict[str, Path]:
        """The file that --data names for a task."""
        return task_files(self.data, self.names(), task_name)

    def limits_of(self, task: str) -> tuple[float, ...]:
        known = find_dsrl_task(task)
        if self.tight:
            return (known.tight_cost_limit if known else EMBEDDED_TIGHT_LIMIT,)
        return self.limits or (known.cost_limits if known else EMBEDDED_LIMITS)

    def alphas_of(self, algorithm: str) -> tuple[float, ...]:
        return () if algorithm in WITHOUT_ALPHA else self.alphas

    def members_of(self, algorithm: str) -> int:
        """How many policies an algorithm has for each task and limit; a family has them for all limits at once."""
        return self.seeds if algorithm in FAMILIES else (len(self.alphas_of(algorithm)) or 1) * self.seeds

    def asked(self, task: str, algorithm: str) -> dict[str, object]:
        """All that the numbers of a task with an algorithm depend on beside the limits, in JSON's types."""
        file = self.files().get(task)
        made = f"{self.logged_episodes} episodes made here" if task in EMBEDDED else f"dsrl:{task}"
        return {
            "alphas": list(self.alphas_of(algorithm)),
            "seeds": self.seeds,
            "steps": self.steps,
            "widths": list(self.widths),
            "batch_size": self.batch_size,
            "episodes": self.episodes,
            "logs": hash_of(file) if file else made,
        }


@dataclass(frozen=True)
class BenchDsrlConfig(ProtocolConfig):
    """DSRL's protocol: policies for several cost limits and seeds, estimated, simulated, and tabulated as in the paper.

    Run it again with the same options to go on from where it was stopped.
    """

    algorithms: tuple[AlgorithmName, ...] = ("corsdice", "coptidice", "bc-all", "bc-safe")
    published: bool = False
    """Show the paper's numbers beside the oracle's: Table 2, or of tight limits Table 3."""
    cell_members: int | None = None
    """Most members trained in one cell: all α and seeds unless said. Smaller cells keep more machines busy, and what a
    cell begins with, the models and compiling, is done for each."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.published and self.limits:
            raise UserError("--published numbers are of a task's own limits: leave out --limits")
        if self.cell_members is not None:
            at_least(1, cell_members=self.cell_members)
        distinct(algorithms=self.algorithms)

    def parts_of(self, algorithm: str) -> list[tuple[int, int]]:
        """The members of each cell, from one to another."""
        members = self.members_of(algorithm)
        size = min(self.cell_members or members, members)
        return [(start, min(start + size, members)) for start in range(0, members, size)]


@dataclass(frozen=True)
class DsrlAdvancedConfig(BenchDsrlConfig):
    """Table 3: policies that can be any density, at one tight limit a task, with the published numbers beside.

    Run it again with the same options to go on from where it was stopped.
    """

    out: Path = Path("out/dsrl-advanced")
    """Where the runs, results.csv, summary.json and table.csv, .tex and .html go. What is done is not done again."""
    tasks: tuple[str, ...] = ADVANCED_TASKS
    """By any of their names, the 26 of Table 3 unless said; or embedded ones (point-circle, point-run, point-ridge)."""
    tight: bool = True
    """A task's one tight limit, 10 or 5."""
    seeds: int = 3
    algorithms: tuple[AlgorithmName, ...] = ("d-corsdice", "d-bc-all", "d-bc-safe")
    published: bool = True
    """Show the paper's numbers beside the oracle's."""


def task_name(name: str) -> str:
    """The short name of a task, by any of its names."""
    if name in EMBEDDED:
        return name
    if task := find_dsrl_task(name):
        return task.task
    raise UserError(f"unknown task {name!r}: choose {', '.join(EMBEDDED)} or one that `corsdice data list` shows")
