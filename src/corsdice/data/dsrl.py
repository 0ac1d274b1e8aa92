"""The 38 tasks of DSRL (Liu et al. 2023, "Datasets and Benchmarks for Offline Safe Reinforcement Learning").

Names, sizes, horizons, cost limits and the ranges that DSRL normalises by. `dsrl_tasks.csv` holds the constants.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from corsdice.errors import UserError

Suite = Literal["bullet", "safety-gymnasium", "metadrive"]


@dataclass(frozen=True)
class DsrlTask:
    """A row of `dsrl_tasks.csv`. Returns and costs are undiscounted sums over an episode."""

    suite: Suite
    task: str
    dataset_file: str
    """As DSRL names it: simulator id, largest cost, number of episodes."""
    obs_dim: int
    act_dim: int
    horizon: int
    min_return: float
    max_return: float
    min_cost: float
    max_cost: float
    cost_limits: tuple[float, ...]
    """Of DSRL's protocol, an episode."""
    tight_cost_limit: float
    """Of the paper's Table 3."""

    @cached_property
    def id(self) -> str:
        """The simulator's own name, such as SafetyBallCircle-v0 or SafetyCarGoal1Gymnasium-v0."""
        return re.sub(r"-\d+-\d+\.hdf5$", "", self.dataset_file)

    @property
    def dataset_episodes(self) -> int:
        """In DSRL's file, whose name ends with their number."""
        return int(self.dataset_file.removesuffix(".hdf5").rpartition("-")[2])

    @property
    def names(self) -> tuple[str, ...]:
        """What it may be called: short, as the simulator, as DSRL's offline environment."""
        offline = self.id.replace("SafeMetaDrive", "OfflineMetadrive").replace("Safety", "Offline", 1)
        plain = self.id.replace("Gymnasium", "")
        return tuple(dict.fromkeys((self.task, self.id, plain, offline)))

    def normalised_return(self, episode_return: float) -> float:
        """0 at the worst return of DSRL's data, 1 at the best."""
        return (episode_return - self.min_return) / (self.max_return - self.min_return)


def normalised_cost(episode_cost: float, limit: float) -> float:
    """At most 1 where the limit is kept. DSRL adds 1 to both where the limit is 0."""
    added = 1.0 if limit == 0 else 0.0
    return (episode_cost + added) / (limit + added)


def _read() -> dict[str, DsrlTask]:
    with (files("corsdice.data") / "dsrl_tasks.csv").open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    return {row["task"]: _parse(row) for row in rows}


def _parse(row: dict[str, Any]) -> DsrlTask:
    """By the types of the fields."""
    parsers: dict[str, Callable[[str], Any]] = {
        "int": int,
        "float": float,
        "tuple[float, ...]": lambda text: tuple(map(float, text.split(";"))),
    }
    return DsrlTask(**{field.name: parsers.get(str(field.type), str)(row[field.name]) for field in fields(DsrlTask)})


DSRL_TASKS = _read()
_BY_ANY_NAME = {name.lower(): task for task in DSRL_TASKS.values() for name in task.names}


def find_dsrl_task(name: str) -> DsrlTask | None:
    """By any of its names, in any case; None if it is no task of DSRL."""
    return _BY_ANY_NAME.get(name.lower())


def dsrl_task(name: str) -> DsrlTask:
    if task := find_dsrl_task(name):
        return task
    raise UserError(f"unknown task {name!r}: `corsdice data list` shows the 38 of DSRL")


def dsrl_directory() -> Path:
    """Where DSRL itself keeps its files, so that those it has fetched are found."""
    return Path(os.environ.get("DSRL_DATASET_DIR") or "~/.dsrl/datasets").expanduser()


def dsrl_file(name: str) -> Path:
    """The dataset of a task, which must be there."""
    task = dsrl_task(name)
    path = dsrl_directory() / task.dataset_file
    if not path.is_file():
        raise UserError(f"no file {path}: fetch it with `corsdice data download {task.task}`")
    return path
