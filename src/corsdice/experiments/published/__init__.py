"""What Kim, Seo, Lee and Lee (2025) published in "Semi-gradient DICE for Offline Constrained Reinforcement Learning".

`dsrl.csv` is Table 2: normalised return and cost on DSRL's own data, α chosen with the simulator, means over three cost
limits, 5 seeds and 20 episodes, after a million updates. `d4rl.csv` is the table of appendix G.2: normalised scores on
D4RL's own data, with α = 1 and β = .5. `dsrl_advanced.csv` is Table 3: at one tight limit, 3 seeds and 20 episodes.
"""

from __future__ import annotations

import csv
from collections.abc import Collection
from importlib.resources import files

from corsdice.data.dsrl import DSRL_TASKS
from corsdice.report.benchmark import Score, average_name

AVERAGES = {
    "SafetyGym Average": "safety-gymnasium",
    "BulletGym Average": "bullet",
    "MetaDrive Average": "metadrive",
    "Metadrive Average": "metadrive",
}


def published_scores(tasks: Collection[str], tight: bool = False) -> dict[tuple[str, str], Score]:
    """By row of our table and algorithm. The average of a suite is there only if all of its published tasks are."""
    name = "dsrl_advanced.csv" if tight else "dsrl.csv"
    with (files("corsdice.experiments.published") / name).open(encoding="utf-8") as table:
        rows = [(_row_name(row["task"]), row) for row in csv.DictReader(table)]
    told = {name for name, _ in rows}
    complete = {
        average_name(suite): all(
            task.task in tasks for task in DSRL_TASKS.values() if task.suite == suite and task.task in told
        )
        for suite in AVERAGES.values()
    }
    return {
        (name, row["method"].lower()): Score(float(row["reward"]), float(row["cost"]))
        for name, row in rows
        if name in tasks or complete.get(name)
    }


def published_d4rl_scores() -> dict[tuple[str, str], float]:
    """By task and algorithm."""
    with (files("corsdice.experiments.published") / "d4rl.csv").open(encoding="utf-8") as table:
        return {
            (row["task"], method.lower()): float(score)
            for row in csv.DictReader(table)
            for method, score in row.items()
            if method != "task"
        }


def _row_name(name: str) -> str:
    """The paper shortens the velocity tasks, and has names of its own for the suites."""
    if name in AVERAGES:
        return average_name(AVERAGES[name])
    return f"{name}ocity" if name.endswith("Vel") else name
