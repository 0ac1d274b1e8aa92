"""Estimated against true cost of one algorithm with several ways to act: is what was estimated what ships?

ν and Q are CORSDICE's throughout, and a limit chooses λ for each way to act by itself. What is done is on disk, and a
second run goes on from there, as of `bench dsrl`: runs/ and cells/ of each family in a directory of its name.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from corsdice.experiments.actors_config import ActorsConfig
from corsdice.experiments.dsrl_cells import CHOICE, Cell, complete_cells, read_cells
from corsdice.experiments.selection import Record
from corsdice.files import output_directory, provenance, write_csv, write_json
from corsdice.report import terminal
from corsdice.training import directory

COLUMNS = (
    *("task", "actor", "cost_limit", "seed", "alpha", "return", "return_se", "cost", "cost_se"),
    *("estimated_return", "estimated_cost", "estimated_cost_low", "estimated_cost_high", "verdict", "failure"),
    *CHOICE,
)


class Actor(NamedTuple):
    """A way to act of a family."""

    family: str
    way: str


ACTORS = {
    "gaussian": Actor("gaussian", "draws"),
    "mixture": Actor("mixture", "draws"),
    "mode": Actor("mixture", "mode"),
    "improved": Actor("mixture", "improved"),
    "resampled": Actor("resampled", "resample"),
    "guided": Actor("guided", "guide"),
    "guided-by-energy": Actor("guided-by-energy", "guide"),
    "selected": Actor("selected", "guide"),
}


def run(config: ActorsConfig) -> None:
    started = time.perf_counter()
    out = output_directory(config.out)
    cells = cells_of(config, out.resolve())
    try:
        complete_cells(config, list(cells.values()))
    except KeyboardInterrupt:
        raise directory.Stopped(f"stopped; what is done is in {out}: run the same command again to go on") from None
    names = {actor: name for name, actor in ACTORS.items()}
    policies = [
        policy | {"actor": names[Actor(family, policy["way"])]}
        for (_, family), cell in cells.items()
        for policy in read_cells([cell])
    ]
    summary = summarise(policies)
    show(summary)
    write_csv(out / "results.csv", COLUMNS, ([policy[name] for name in COLUMNS] for policy in policies))
    write_json(out / "summary.json", summary)
    write_json(out / "provenance.json", provenance(config, time.perf_counter() - started))
    terminal.print_written(out, ("results.csv", "summary.json"))


def cells_of(config: ActorsConfig, out: Path) -> dict[tuple[str, str], Cell]:
    """By task and family; those of a task, which share its logs, follow each other."""
    ways: dict[str, list[str]] = {}
    for name in config.actors:
        ways.setdefault(ACTORS[name].family, []).append(ACTORS[name].way)

    def cell(task: str, family: str) -> Cell:
        algorithm, options = trained(config, family)
        members = 0, config.members_of(algorithm)
        limits = config.limits_of(task)
        return Cell(config, out / family, task, algorithm, limits, members, tuple(options.items()), tuple(ways[family]))

    return {(task, family): cell(task, family) for task in config.names() for family in ways}


def trained(config: ActorsConfig, family: str) -> tuple[str, dict[str, Any]]:
    """The algorithm of a family, and its options."""
    if family == "gaussian":
        return "corsdice", {"components": 1, "squash": True}
    if family == "mixture":
        return "corsdice", {}
    score = {"score_width": config.score_width, "score_steps": config.score_steps}
    choice = {
        "resampled": {"way": "resample", "candidates": config.candidates},
        "guided": {"way": "guide", "candidates": 1},
        "guided-by-energy": {"way": "guide", "guidance": "energy", "candidates": 1},
        "selected": {"way": "guide", "candidates": config.candidates},
    }
    return "d-corsdice", score | choice[family]


def summarise(policies: Sequence[Record]) -> list[dict[str, Any]]:
    """For each task, limit and way to act: means over α and seeds, how far the estimates are off, how many are safe."""
    groups: dict[tuple[str, float, str], list[Record]] = {}
    for policy in policies:
        if policy["failure"] is None:
            groups.setdefault((policy["task"], policy["cost_limit"], policy["actor"]), []).append(policy)
    return [
        {
            "task": task,
            "cost_limit": limit,
            "actor": actor,
            "policies": len(found),
            "return": float(np.mean([policy["return"] for policy in found])),
            "cost": float(np.mean([policy["cost"] for policy in found])),
            "highest_cost": float(max(policy["cost"] for policy in found)),
            "error": float(np.mean([abs(policy["estimated_cost"] - policy["cost"]) for policy in found])),
            "safe": sum(policy["cost"] <= limit for policy in found),
        }
        for (task, limit, actor), found in sorted(groups.items(), key=lambda group: group[0][:2])
    ]


def show(summary: Sequence[dict[str, Any]]) -> None:
    terminal.print_table(
        "Means over policies; the error is that of the estimated cost of an episode",
        ("task", "limit", "actor", "return", "cost", "highest", "error", "safe"),
        [
            (
                line["task"],
                f"{line['cost_limit']:g}",
                line["actor"],
                *(f"{line[name]:.1f}" for name in ("return", "cost", "highest_cost", "error")),
                f"{line['safe']} of {line['policies']}",
            )
            for line in summary
        ],
    )
