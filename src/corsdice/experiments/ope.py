"""Table 1 of the paper: how far off-policy estimates of SemiDICE policies are from what the policies really do.

For each task, α and seed: a policy learned from half of the logs, its discounted return and cost estimated by every
estimator from the other half, and simulated. A cell that is done is on disk, and a second run goes on from there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np

from corsdice import data, envs, ope
from corsdice.algorithms.logs import units_of
from corsdice.data.dataset import Dataset
from corsdice.data.split import Split, split
from corsdice.envs.simulate import simulate
from corsdice.errors import UserError
from corsdice.experiments.cells import digest, kept, kept_file
from corsdice.experiments.configs import OpeTableConfig
from corsdice.files import output_directory, provenance, write_csv, write_json
from corsdice.ope import behaviour
from corsdice.ope.estimate import QUANTITIES
from corsdice.ope.estimators import Estimator, estimator
from corsdice.ope.networks import Training
from corsdice.report import figures, terminal
from corsdice.training import directory
from corsdice.training.assess import own_correction
from corsdice.training.run import Outcome, fingerprint, plan_of

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
    trained = config.trained() | {"logs": fingerprint(dataset)}
    subjects = _Subjects(config, task, dataset, source, out / "runs" / f"{task}-{digest(trained)}")
    for index, (alpha, seed) in enumerate(product(config.alphas, range(config.seeds))):
        place = out / "cells" / task / str(index)
        policy = trained | {"member": index}
        truth: dict[str, float] = kept(
            place / "truth.json", policy | {"episodes": config.truth_episodes}, partial(subjects.truth, index)
        )
        rows: list[dict[str, Any]] = []
        for name in config.estimators:
            asked = policy | config.estimated() | {"estimator": name}
            told = kept(place / f"{name}.json", asked, partial(subjects.estimate, index, name))
            key = {"task": task, "alpha": alpha, "seed": seed, "estimator": name}
            rows += records(key, told, truth)
        yield rows


class _Subjects:
    """The policies of a task, trained once something is asked of them."""

    def __init__(self, config: OpeTableConfig, task: str, dataset: Dataset, source: str, where: Path) -> None:
        self.config, self.task, self.dataset, self.source, self.where = config, task, dataset, source, where

    @cached_property
    def outcome(self) -> Outcome:
        config = self.config
        # The paper's α is in the unit of the raw reward.
        unit = 1 / float(units_of(self.parts.train, DISCOUNT).reward_scale)
        plan = plan_of(
            "semidice",
            self.dataset,
            [0.0],
            horizon=horizon_of(self.task),
            alphas=[alpha * unit for alpha in config.alphas],
            seeds=config.seeds,
            holdout=HOLDOUT,
            options={"steps": config.steps, "widths": config.widths, "batch_size": config.batch_size},
            settings={"discount": DISCOUNT},
        )
        return directory.train(self.where, plan, self.dataset, self.source)

    @cached_property
    def parts(self) -> Split:
        return split(self.dataset, HOLDOUT)

    @cached_property
    def evidence(self) -> ope.Evidence:
        plan = self.outcome.plan
        return ope.evidence_of(
            self.parts.held_out, self.outcome.units, plan.horizon, DISCOUNT, self.config.evidence_rows
        )

    @cached_property
    def training(self) -> Training:
        return Training(self.config.estimator_steps, self.config.batch_size, self.config.estimator_widths)

    @cached_property
    def estimators(self) -> dict[str, Estimator]:
        return {name: estimator(name, self.evidence, self.training) for name in self.config.estimators}

    @cached_property
    def logged(self) -> jax.Array:
        return behaviour.behaviour_log_density(self.evidence, self.training)

    def truth(self, index: int) -> dict[str, float]:
        env, episodes = environment_of(self.task), self.config.truth_episodes
        return simulate(self.outcome.policy(index), env, episodes, 1, DISCOUNT, self.config.workers)

    def estimate(self, index: int, name: str) -> dict[str, Any]:
        sums = self.estimators[name](self.question(index)).discounted
        return {quantity: found._asdict() for quantity, found in zip(QUANTITIES, sums, strict=True)}

    def question(self, index: int) -> ope.Question:
        """With w(a|s): SemiDICE's own, or the actor's density over one fitted to the logs."""
        if index not in self._questions:
            policy = self.outcome.policy(index)
            question = ope.ask(self.evidence, policy, self.outcome.plan.members[index].seed)
            if self.config.correction == "learner":
                w = own_correction(self.outcome, index, self.evidence)
            else:
                own = behaviour.policy_log_density(self.evidence, policy, question, self.training)
                w = behaviour.policy_correction(own, self.logged)
            self._questions[index] = question._replace(policy_correction=w)
        return self._questions[index]

    @cached_property
    def _questions(self) -> dict[int, ope.Question]:
        return {}


def records(key: dict[str, Any], told: dict[str, Any], truth: dict[str, float]) -> list[dict[str, Any]]:
    return [
        key
        | {
            "quantity": quantity,
            "estimate": told[quantity]["value"],
            "low": told[quantity]["low"],
            "high": told[quantity]["high"],
            "truth": truth[f"discounted_{quantity}"],
            "truth_se": truth[f"discounted_{quantity}_se"],
        }
        for quantity in QUANTITIES
    ]


def logs_for(config: OpeTableConfig, out: Path, task: str, file: Path | None) -> tuple[Dataset, str]:
    """The logs of a task: a given file, or made here, once."""
    path = file or output_directory(out / "data") / f"{task}.hdf5"
    if file is None:
        kept_file(path, config.made(task), partial(make_logs, config, task))
    return data.check(data.read(str(path))), str(path)


def make_logs(config: OpeTableConfig, task: str, path: Path) -> None:
    print(f"making logs of {task}: {path}", flush=True)
    if task in envs.TASKS:
        data.write(envs.collect(envs.task_by_name(task), 0, config.episodes), path)
        return
    from corsdice.envs.snapshots import collect_snapshots

    data.write(collect_snapshots(task, config.collect_steps, snapshots=config.collect_snapshots), path)


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
