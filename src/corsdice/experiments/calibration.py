"""Estimated against true sums of an episode, over many policies of CORSDICE and several kinds of logs.

Of each kind of logs one family is trained, traced and asked as `corsdice train` does it. Limits choose policies of
every α and seed, and others are taken evenly along the frontier: all are judged by what was kept for that, and
simulated.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from corsdice import envs
from corsdice.costs import CostLimit
from corsdice.data.dataset import Dataset
from corsdice.data.dsrl import find_dsrl_task
from corsdice.data.split import split
from corsdice.envs.simulate import SUMS, play_each
from corsdice.experiments.calibration_config import CalibrationConfig
from corsdice.experiments.cells import digest, kept
from corsdice.experiments.dsrl_cells import logs_of
from corsdice.experiments.families import traced_once
from corsdice.files import output_directory, provenance, write_csv, write_json
from corsdice.ope.episodes import DEVIATIONS, TAIL
from corsdice.ope.estimate import QUANTITIES
from corsdice.policy import Policy
from corsdice.policy_family import PolicyFamily
from corsdice.report import figures, terminal
from corsdice.training import directory
from corsdice.training.assess import assessor_of
from corsdice.training.run import fingerprint, plan_of
from corsdice.training.ship import models_of

Record = dict[str, Any]
CHOICE = ("alpha", "seed", "way", "multiplier", "imitation")
TOLD = ("return", "cost", "cvar", "share_over")
"""What is estimated with an interval and simulated."""
COLUMNS = (
    *("task", *CHOICE, "cost_limit", "verdict", "strange"),
    *(f"{name}{end}" for name in TOLD for end in ("", "_low", "_high", "_truth", "_truth_se")),
)
ENDS = {"": "value", "_low": "low", "_high": "high"}
FAR_WITHIN = 0.7
"""Of a limit: a policy that costs less should be told to meet it."""
TRUTH_SEED = 1


class Subject(NamedTuple):
    """A policy to judge by a limit."""

    policy: Policy
    limit: float


def run(config: CalibrationConfig) -> None:
    started = time.perf_counter()
    out = output_directory(config.out)
    rows: list[Record] = []
    with terminal.progress(len(config.names()), "tasks") as advance:
        for task in config.names():
            rows += found_of(config, out, task)
            advance(task)
            write_csv(out / "results.csv", COLUMNS, ([row[name] for name in COLUMNS] for row in rows))
    summary = [summarise([row for row in rows if row["task"] == task]) for task in config.names()]
    show(summary)
    draw(rows, out / "calibration.png")
    write_json(out / "summary.json", summary)
    write_json(out / "provenance.json", provenance(config, time.perf_counter() - started))
    terminal.print_written(out, ("results.csv", "summary.json", "calibration.png"))


def found_of(config: CalibrationConfig, out: Path, task: str) -> list[Record]:
    """The records of a task, which are made once."""
    dataset, source = logs_of(config.files(), config.logged_episodes, out, task)
    logs = {"logs": fingerprint(dataset)}
    run = out / "runs" / f"{task}-{digest(config.trained() | logs)}"
    make = partial(records, config, task, dataset, source, run)
    found: list[Record] = kept(out / "cells" / f"{task}.json", config.asked() | logs, make)
    return found


def records(config: CalibrationConfig, task: str, dataset: Dataset, source: str, where: Path) -> list[Record]:
    """One for each policy: what is estimated, and what is true."""
    known = find_dsrl_task(task)
    plan = plan_of(
        "corsdice",
        dataset,
        [],
        horizon=known.horizon if known else envs.task_by_name(task).horizon,
        alphas=list(config.alphas),
        seeds=config.seeds,
        options={"steps": config.steps, "widths": config.widths, "batch_size": config.batch_size},
    )
    outcome = directory.train(where, plan, dataset, source)
    parts = split(dataset, plan.holdout)
    models = models_of(outcome, parts)
    family = traced_once(where, outcome, parts, models)
    assessor = assessor_of(outcome, parts.judge, models)
    logged_cost = float(dataset.episodes.sums(dataset.costs).mean())
    limits = [share * logged_cost for share in config.shares]
    members = [index for index in range(len(plan.members)) if index not in outcome.failures]
    found = [subject for member in members for subject in subjects(family, member, limits, config.others)]
    # Nothing discounted is asked for: episodes need not run on beyond their time limit.
    played = play_each([each.policy for each in found], task, config.truth_episodes, TRUTH_SEED, 0.0, config.workers)
    rows = []
    for subject, sums in zip(found, played, strict=True):
        limit = CostLimit.episodic(subject.limit, horizon=plan.horizon, discount=plan.discount)
        estimate = assessor.record(subject.policy, limit)
        rows.append(
            {"task": task, "cost_limit": subject.limit}
            | {name: subject.policy.about[name] for name in CHOICE}
            | {name: estimate[name] for name in ("verdict", "strange")}
            | {f"{name}{end}": estimate[name][told] for name in TOLD for end, told in ENDS.items()}
            | truths(sums, subject.limit)
        )
    jax.clear_caches()  # what other logs compile holds memory maps, of which a process has only so many
    return rows


def subjects(family: PolicyFamily, member: int, limits: Sequence[float], others: int) -> list[Subject]:
    """The policies that limits choose, and others of the frontier, each with the least limit that it may keep."""
    frontier = family.frontier
    chosen = {frontier.nearest(limit, [member]): limit for limit in reversed(limits)}
    efficient = frontier.efficient([member])
    for place in np.linspace(0, len(efficient) - 1, min(others, len(efficient))).round().astype(int):
        point = efficient[place]
        kept_by = [limit for limit in limits if point.cost.value <= limit]
        chosen.setdefault(point, min(kept_by, default=max(limits)))
    return [Subject(family.policy(point, limit), limit) for point, limit in chosen.items()]


def truths(sums: np.ndarray, limit: float) -> dict[str, float]:
    """Means over simulated episodes [n, 4] with their standard errors, over the dearest tenth too."""
    returns, costs = sums[:, SUMS.index("return")], sums[:, SUMS.index("cost")]
    quantile = np.quantile(costs, 1 - TAIL)
    episodes = {
        "return": returns,
        "cost": costs,
        "cvar": quantile + np.maximum(costs - quantile, 0) / TAIL,
        "share_over": (costs > limit).astype(float),
    }
    return {
        name: number
        for quantity, values in episodes.items()
        for name, number in (
            (f"{quantity}_truth", float(values.mean())),
            (f"{quantity}_truth_se", float(values.std(ddof=1) / np.sqrt(len(values)))),
        )
    }


def holds(row: Record, quantity: str) -> bool:
    """Whether the interval holds the truth, which is itself known to its standard error."""
    error = row[f"{quantity}_truth"] - row[quantity]
    half = row[f"{quantity}_high"] - row[quantity] if error > 0 else row[quantity] - row[f"{quantity}_low"]
    return abs(error) <= np.hypot(half, DEVIATIONS * row[f"{quantity}_truth_se"])


def summarise(rows: Sequence[Record]) -> dict[str, Any]:
    """Of one kind of logs."""
    limits = np.array([row["cost_limit"] for row in rows])
    meets = np.array([row["verdict"] == "meets" for row in rows])
    truth = np.array([row["cost_truth"] for row in rows])
    far_within = truth <= FAR_WITHIN * limits
    found: dict[str, Any] = {"task": rows[0]["task"], "policies": len(rows)}
    for quantity in TOLD:
        errors = np.array([row[quantity] - row[f"{quantity}_truth"] for row in rows])
        found[quantity] = {
            "truth": float(np.mean([row[f"{quantity}_truth"] for row in rows])),
            "rmse": float(np.sqrt((errors**2).mean())),
            "bias": float(errors.mean()),
            "coverage": float(np.mean([holds(row, quantity) for row in rows])),
        }
    errors = np.array([abs(row["cost"] - row["cost_truth"]) for row in rows])
    found["median_error_over_limit"] = float(np.median(errors / limits))
    wrong = truth - np.array([row["cost_truth_se"] for row in rows]) > limits
    found["verdicts"] = {
        "meets": int(meets.sum()),
        "meets_wrongly": int((meets & wrong).sum()),
        "does_not_meet": sum(row["verdict"] == "does not meet" for row in rows),
        "does_not_meet_wrongly": sum(
            row["verdict"] == "does not meet" and row["cost_truth"] + row["cost_truth_se"] < row["cost_limit"]
            for row in rows
        ),
        "far_within": int(far_within.sum()),
        "far_within_not_told": int((far_within & ~meets).sum()),
    }
    return found


def show(summary: Sequence[dict[str, Any]]) -> None:
    terminal.print_table(
        "Sums over an episode: the truth, and the root mean square error of the estimate",
        ("logs", "policies", "cost", "error", "return", "error", "dearest tenth", "error", "share over: error"),
        [
            (
                each["task"],
                str(each["policies"]),
                *(f"{each[name][number]:.3g}" for name in ("cost", "return", "cvar") for number in ("truth", "rmse")),
                f"{each['share_over']['rmse']:.3f}",
            )
            for each in summary
        ],
    )
    terminal.print_table(
        "95 % intervals that hold the truth, and verdicts",
        ("logs", "cost", "return", "dearest tenth", "meets", "wrongly", "not told"),
        [
            (
                each["task"],
                *(f"{each[name]['coverage']:.0%}" for name in ("cost", "return", "cvar")),
                str(each["verdicts"]["meets"]),
                str(each["verdicts"]["meets_wrongly"]),
                f"{each['verdicts']['far_within_not_told']} of {each['verdicts']['far_within']}",
            )
            for each in summary
        ],
    )
    print(f"not told: of those that cost at most {FAR_WITHIN:.0%} of their limit, how many are not said to meet it")


def draw(rows: Sequence[Record], path: Path) -> None:
    """A row of figures for each kind of logs: cost, and return."""
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    with figures.figure(len(tasks), 2, width=8, height=3.6 * len(tasks)) as (fig, axes):
        for line, task in zip(axes, tasks, strict=True):
            for axis, quantity in zip(line, QUANTITIES, strict=True):
                ends = {"estimate": quantity, "low": f"{quantity}_low", "high": f"{quantity}_high"}
                points = [
                    {"estimator": "models", "truth": row[f"{quantity}_truth"]}
                    | {name: row[column] for name, column in ends.items()}
                    for row in rows
                    if row["task"] == task
                ]
                figures.calibration(axis, points)
                axis.set_title(f"{task}: {quantity} of an episode")
        fig.savefig(path)
