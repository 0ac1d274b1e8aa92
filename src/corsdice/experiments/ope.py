"""Table 1 of the paper: how far off-policy estimates of SemiDICE policies are from what the policies really do.

For each task, α and seed: a policy learned from half of the logs, its discounted return and cost estimated by every
estimator from the other half, and simulated. A cell that is done is on disk, and a second run goes on from there.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from corsdice import data, envs, ope
from corsdice.algorithms.logs import units_of
from corsdice.data.dataset import Dataset
from corsdice.data.split import split
from corsdice.envs.simulate import simulate
from corsdice.errors import UserError
from corsdice.experiments.configs import OpeTableConfig
from corsdice.files import output_directory, provenance, write_csv, write_json
from corsdice.ope import behaviour
from corsdice.ope.estimate import QUANTITIES, EpisodeEstimate, Estimate
from corsdice.ope.estimators import estimator
from corsdice.ope.networks import Training
from corsdice.report import figures, terminal
from corsdice.training import directory
from corsdice.training.assess import own_correction
from corsdice.training.run import plan_of

COLUMNS = (
    "task",
    "alpha",
    "seed",
    "estimator",
    "quantity",
    "estimate",
    "low",
    "high",
    "truth",
    "truth_se",
)
PUBLISHED = {
    "naive": {"hopper": 90.62, "halfcheetah": 87.58, "walker2d": 111.63},
    "extraction": {"hopper": 20.70, "halfcheetah": 26.44, "walker2d": 9.20},
    "dualdice": {"hopper": 58.08, "halfcheetah": 162.81, "walker2d": 20.53},
    "ihope": {"hopper": 78.61, "halfcheetah": 57.92, "walker2d": 90.01},
}
"""RMSE of the discounted return on D4RL data, as published; naive is the paper's row SemiDICE."""
HOLDOUT = 0.5
DISCOUNT = 0.99


def run(config: OpeTableConfig) -> None:
    started = time.perf_counter()
    out = output_directory(config.out)
    files = config.files()
    rows: list[dict[str, Any]] = []
    with terminal.progress(len(config.tasks) * len(config.alphas) * config.seeds, "policies") as advance:
        for task in config.tasks:
            for cell in cells(config, out, task, files.get(task)):
                rows += cell
                advance(task)
            write_csv(out / "results.csv", COLUMNS, ([row[name] for name in COLUMNS] for row in rows))
    summary = summarise(rows)
    show(summary, config)
    draw(rows, out / "calibration.png")
    write_json(out / "summary.json", summary)
    write_json(out / "provenance.json", provenance(config, time.perf_counter() - started))
    terminal.print_written(out, ("results.csv", "summary.json", "calibration.png"))


def cells(config: OpeTableConfig, out: Path, task: str, file: Path | None) -> Iterator[list[dict[str, Any]]]:
    """The rows of each policy of a task, in the order of the plan's members."""
    dataset, source = logs_for(config, out, task, file)
    parts = split(dataset, HOLDOUT)
    # The paper's α is in the unit of the raw reward.
    unit = 1 / float(units_of(parts.train, DISCOUNT).reward_scale)
    plan = plan_of(
        "semidice",
        dataset,
        [0.0],
        horizon=horizon_of(task),
        alphas=[alpha * unit for alpha in config.alphas],
        seeds=config.seeds,
        holdout=HOLDOUT,
        options={"steps": config.steps, "widths": config.widths, "batch_size": config.batch_size},
        settings={"discount": DISCOUNT},
    )
    where = out / "runs" / task
    outcome = directory.train(where, plan, dataset, source)
    evidence = ope.evidence_of(parts.held_out, outcome.units, plan.horizon, DISCOUNT, config.evidence_rows)
    training = Training(config.estimator_steps, config.batch_size, config.estimator_widths)
    logged = None
    if config.correction == "ratio":
        logged = behaviour.behaviour_log_density(evidence, training)
    estimators = {name: estimator(name, evidence, training) for name in config.estimators}
    results = output_directory(out / "cells" / task)
    for index, member in enumerate(plan.members):
        path = results / f"{index}.json"
        rows = json.loads(path.read_text()) if path.exists() else []
        missing = [name for name in config.estimators if name not in {row["estimator"] for row in rows}]
        if missing:
            policy = outcome.policy(index)
            question = ope.ask(evidence, policy, member.seed)
            if logged is None:
                w = own_correction(outcome, index, evidence)
            else:
                own = behaviour.policy_log_density(evidence, policy, question, training)
                w = behaviour.policy_correction(own, logged)
            question = question._replace(policy_correction=w)
            truth = truth_in(rows) or simulate(
                policy, environment_of(task), config.truth_episodes, 1, DISCOUNT, config.workers
            )
            key = {"task": task, "alpha": config.alphas[index // config.seeds], "seed": member.seed}
            for name in missing:
                rows += records(key | {"estimator": name}, estimators[name](question), truth)
            write_json(path, rows)
        yield [row for row in rows if row["estimator"] in config.estimators]


def truth_in(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What was simulated for the estimates that a cell already holds."""
    return {
        name: row[column]
        for row in rows
        for name, column in (
            (f"discounted_{row['quantity']}", "truth"),
            (f"discounted_{row['quantity']}_se", "truth_se"),
        )
    }


def records(key: dict[str, Any], estimate: Estimate | EpisodeEstimate, truth: dict[str, float]) -> list[dict[str, Any]]:
    return [
        key
        | {
            "quantity": quantity,
            "estimate": found.value,
            "low": found.low,
            "high": found.high,
            "truth": truth[f"discounted_{quantity}"],
            "truth_se": truth[f"discounted_{quantity}_se"],
        }
        for quantity, found in zip(QUANTITIES, estimate.discounted, strict=True)
    ]


def logs_for(config: OpeTableConfig, out: Path, task: str, file: Path | None) -> tuple[Dataset, str]:
    """The logs of a task: a given file, or made here, once."""
    path = file or output_directory(out / "data") / f"{task}.hdf5"
    if file is None and not path.exists():
        print(f"making logs of {task}: {path}", flush=True)
        if task in envs.TASKS:
            data.write(envs.collect(envs.task_by_name(task), 0, config.episodes), path)
        else:
            from corsdice.envs.snapshots import collect_snapshots

            data.write(collect_snapshots(task, config.collect_steps, snapshots=config.collect_snapshots), path)
    return data.check(data.read(str(path))), str(path)


def horizon_of(task: str) -> int:
    if task in envs.TASKS:
        return envs.task_by_name(task).horizon
    from corsdice.envs.mujoco import HORIZON

    return HORIZON


def environment_of(task: str) -> str:
    if task in envs.TASKS:
        return task
    from corsdice.envs.mujoco import velocity_task

    return velocity_task(task).id


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each task, quantity and estimator: the error over all α and seeds, and how often the interval holds truth."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["task"], row["quantity"], row["estimator"]), []).append(row)
    found = []
    for (task, quantity, name), members in groups.items():
        errors = np.array([row["estimate"] - row["truth"] for row in members])
        covered = [
            row["low"] - 2 * row["truth_se"] <= row["truth"] <= row["high"] + 2 * row["truth_se"] for row in members
        ]
        found.append(
            {
                "task": task,
                "quantity": quantity,
                "estimator": name,
                "policies": len(members),
                "rmse": float(np.sqrt((errors**2).mean())),
                "bias": float(errors.mean()),
                "mean_truth": float(np.mean([row["truth"] for row in members])),
                "coverage": float(np.mean(covered)),
                "published_rmse": PUBLISHED.get(name, {}).get(task) if quantity == "return" else None,
            }
        )
    return found


def show(summary: list[dict[str, Any]], config: OpeTableConfig) -> None:
    for quantity in QUANTITIES:
        cells = {(row["estimator"], row["task"]): row for row in summary if row["quantity"] == quantity}
        table = []
        for name in config.estimators:
            numbers = []
            for task in config.tasks:
                row = cells[name, task]
                best = min(cells[other, task]["rmse"] for other in config.estimators)
                published = row["published_rmse"]
                numbers.append(
                    f"{row['rmse']:.2f}{'*' if math.isclose(row['rmse'], best) else ''}"
                    + (f" ({published:.2f})" if published is not None else "")
                )
            table.append((name, *numbers))
        table.append(
            ("mean truth", *(f"{cells[config.estimators[0], task]['mean_truth']:.1f}" for task in config.tasks))
        )
        terminal.print_table(f"RMSE of the discounted {quantity}", ("estimator", *config.tasks), table)
    print("* the smallest; in brackets: as published, on D4RL data, which ours are not")


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Estimated against true, one panel for each task and quantity, models with their intervals."""
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    if not tasks:
        raise UserError("nothing to draw: no task was asked for")
    with figures.figure(2, len(tasks), width=3.2 * len(tasks), height=6) as (fig, axes):
        for column, task in enumerate(tasks):
            for axis, quantity in zip(axes[:, column], QUANTITIES, strict=True):
                figures.calibration(axis, [r for r in rows if r["task"] == task and r["quantity"] == quantity])
                axis.set_title(f"{task}: discounted {quantity}")
        axes[0, 0].legend(frameon=False, fontsize=7)
        fig.savefig(path)
