"""The cells of DSRL's protocol: an algorithm on a task at a limit, trained, estimated from held-out logs, simulated."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from corsdice import data, envs
from corsdice.data.dataset import Dataset
from corsdice.data.dsrl import dsrl_file, find_dsrl_task, normalised_cost
from corsdice.envs.simulate import simulate_each
from corsdice.errors import UserError
from corsdice.experiments.bench_dsrl_config import EMBEDDED, BenchDsrlConfig, ProtocolConfig
from corsdice.experiments.cells import is_done
from corsdice.experiments.executors import execute
from corsdice.experiments.selection import Record
from corsdice.files import output_directory, write_json
from corsdice.ope import evidence_of
from corsdice.report import terminal
from corsdice.training import directory
from corsdice.training.assess import Assessor
from corsdice.training.run import Outcome, Plan, plan_of, split, units_for

NUMBERS = (
    *("return", "return_se", "cost", "cost_se", "normalised_return", "normalised_cost"),
    *("estimated_return", "estimated_cost", "estimated_cost_low", "estimated_cost_high", "verdict"),
)
"""Of a policy; one that failed in training has none."""
DATA_SEED, EVALUATION_SEED = 0, 1


class Cell(NamedTuple):
    """Policies, by α and seed, of an algorithm on a task at a limit: all, or the members from one to another."""

    config: ProtocolConfig
    out: Path
    task: str
    algorithm: str
    limit: float
    members: tuple[int, int]
    options: tuple[tuple[str, Any], ...] = ()
    """Of the algorithm, beside those that all cells share."""

    @property
    def logs(self) -> str:
        return self.task

    @property
    def name(self) -> str:
        start, stop = self.members
        whole = stop - start == self.config.policies_of(self.algorithm)
        return f"limit-{self.limit:g}" + ("" if whole else f"-members-{start}-{stop}")

    @property
    def run(self) -> Path:
        return self.out / "runs" / self.task / self.algorithm / self.name

    @property
    def results(self) -> Path:
        return self.out / "cells" / self.task / self.algorithm / f"{self.name}.json"

    @property
    def policies(self) -> int:
        start, stop = self.members
        return stop - start

    def __str__(self) -> str:
        return f"{self.task} {self.algorithm}, {self.name.replace('-', ' ')}"

    @property
    def asked(self) -> dict[str, object]:
        return self.config.asked(self.task, self.algorithm) | dict(self.options)


def cells_of(config: BenchDsrlConfig, out: Path) -> list[Cell]:
    return [
        Cell(config, out.resolve(), task, algorithm, limit, members)
        for task in config.names()
        for algorithm in config.algorithms
        for limit in config.limits_of(task)
        for members in config.parts_of(algorithm)
    ]


def read_cells(cells: Sequence[Cell]) -> list[Record]:
    """The policies of all cells, which must be done."""
    return [policy for cell in cells for policy in json.loads(cell.results.read_text())["policies"]]


def complete_cells(config: ProtocolConfig, cells: Sequence[Cell]) -> None:
    """Does every cell that is not done yet."""
    missing = [cell for cell in cells if not is_done(cell.results, cell.asked)]
    _check_ready(config, dict.fromkeys(cell.task for cell in missing))
    with terminal.progress(sum(cell.policies for cell in missing) * config.steps, "updates") as advance:
        if config.executor == "here":
            for cell in execute(config, missing, load, partial(work, advance=advance)):
                advance(f"{cell}, done", 0)
        else:
            for cell in execute(config, missing, load, work):
                advance(f"{cell}, done", cell.policies * config.steps)


@lru_cache(maxsize=1)
def _logs(config: ProtocolConfig, out: Path, task: str) -> tuple[Dataset, str]:
    return logs_of(config, out, task)


def load(cell: Cell) -> tuple[Dataset, str]:
    return _logs(cell.config, cell.out, cell.task)


def work(cell: Cell, logs: tuple[Dataset, str], advance: Callable[..., None] | None = None) -> None:
    """Trains, estimates and simulates; what is trained is not trained again."""

    def progress(step: int, _: Any, fresh: int) -> None:
        if advance:
            advance(f"{cell}, step {step:,}", fresh * cell.policies)

    dataset, source = logs
    outcome = directory.train(cell.run, plan(cell, dataset), dataset, source, progress)
    if advance:
        advance(f"{cell}, simulating", 0)
    output_directory(cell.results.parent)
    found = {"asked": cell.asked, "policies": records(cell, outcome, dataset)}
    write_json(cell.results, found)


def _check_ready(config: ProtocolConfig, tasks: Collection[str]) -> None:
    """That logs and simulators are there, before hours are spent on training."""
    files = config.files()
    for task in tasks:
        if task in files and not files[task].is_file():
            raise UserError(f"no file {files[task]}: check --data")
        if task not in files and task not in EMBEDDED:
            dsrl_file(task)
    one_of_each_suite = {known.suite: task for task in tasks if (known := find_dsrl_task(task))}
    for task in one_of_each_suite.values():
        envs.make(task).close()


def logs_of(config: ProtocolConfig, out: Path, task: str) -> tuple[Dataset, str]:
    """The logs of a task and where they are: a given file, DSRL's, or made here, always the same."""
    file = config.files().get(task)
    if task in EMBEDDED and file is None:
        path = output_directory(out / "data") / f"{task}.hdf5"
        dataset = envs.collect(envs.task_by_name(task), DATA_SEED, config.logged_episodes)
        data.write(dataset, path)
        return dataset, str(path)
    source = str(file or f"dsrl:{task}")
    return data.check(data.read(source)), source


def plan(cell: Cell, dataset: Dataset) -> Plan:
    config, known = cell.config, find_dsrl_task(cell.task)
    whole = plan_of(
        cell.algorithm,
        dataset,
        [cell.limit],
        horizon=known.horizon if known else envs.task_by_name(cell.task).horizon,
        alphas=list(config.alphas_of(cell.algorithm)),
        seeds=config.seeds,
        options={"steps": config.steps, "widths": config.widths, "batch_size": config.batch_size} | dict(cell.options),
    )
    return replace(whole, members=whole.members[slice(*cell.members)])


_assessors: dict[tuple[Any, ...], Assessor] = {}
"""The last one used: what it has fitted to the logs serves all algorithms and limits of a task."""


def assessor_of(outcome: Outcome, dataset: Dataset, rows: int) -> Assessor:
    """Of all algorithms on these logs: they hold the same episodes out and have the same units."""
    plan = outcome.plan
    key = (outcome.data["sha256"], plan.holdout, plan.config.standardise, plan.horizon, plan.discount, rows)
    if key not in _assessors:
        _assessors.clear()
        train, held_out = split(dataset, plan.holdout)
        evidence = evidence_of(held_out, units_for(train, plan), plan.horizon, plan.discount, rows)
        _assessors[key] = Assessor(evidence)
    return _assessors[key]


def records(cell: Cell, outcome: Outcome, dataset: Dataset) -> list[Record]:
    """One for each member of the population, in its order; None for all numbers of one that failed."""
    plan, config, task = outcome.plan, cell.config, cell.task
    trained = [index for index in range(len(plan.members)) if index not in outcome.failures]
    keys = list(product(config.alphas_of(plan.algorithm) or [None], range(config.seeds)))[slice(*cell.members)]
    found: list[Record] = [
        {"task": task, "algorithm": plan.algorithm, "cost_limit": cell.limit, "seed": seed, "alpha": alpha}
        | {"failure": outcome.failures.get(index)}
        | dict.fromkeys(NUMBERS)
        for index, (alpha, seed) in enumerate(keys)
    ]
    if not trained:
        return found
    policies = [outcome.policy(index) for index in trained]
    # Nothing discounted is asked for: episodes need not run on beyond their time limit.
    truths = simulate_each(policies, task, config.episodes, EVALUATION_SEED, 0.0, config.workers)
    assessor = assessor_of(outcome, dataset, config.evidence_rows)
    for index, policy, truth in zip(trained, policies, truths, strict=True):
        estimate = assessor.record(assessor.ask(policy), plan.members[index].limit)
        found[index] |= {
            **{name: truth[name] for name in ("return", "return_se", "cost", "cost_se")},
            "normalised_return": normalised_return(task, truth["return"], outcome.data),
            "normalised_cost": normalised_cost(truth["cost"], cell.limit),
            "estimated_return": estimate["return"]["value"],
            "estimated_cost": estimate["cost"]["value"],
            "estimated_cost_low": estimate["cost"]["low"],
            "estimated_cost_high": estimate["cost"]["high"],
            "verdict": estimate["verdict"],
        }
    return found


def normalised_return(task: str, episode_return: float, logs: dict[str, Any]) -> float:
    """As DSRL has it; where DSRL has no such task, 0 and 1 are the least and the largest return in the logs."""
    if known := find_dsrl_task(task):
        return known.normalised_return(episode_return)
    low, high = logs["lowest_return"], logs["highest_return"]
    return float((episode_return - low) / (high - low))
