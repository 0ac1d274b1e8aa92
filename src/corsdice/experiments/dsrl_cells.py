"""The cells of DSRL's protocol: a task with an algorithm, trained, estimated from held-out logs, and simulated."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from itertools import product
from pathlib import Path
from typing import Any

from corsdice import data, envs
from corsdice.data.dataset import Dataset
from corsdice.data.dsrl import dsrl_file, find_dsrl_task, normalised_cost
from corsdice.envs.simulate import simulate_each
from corsdice.errors import UserError
from corsdice.experiments.bench_dsrl_config import EMBEDDED, BenchDsrlConfig
from corsdice.experiments.cells import is_done
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


def read_cells(config: BenchDsrlConfig, out: Path) -> list[Record]:
    """The policies of all cells, which must be done."""
    paths = [_path(out, task, algorithm) for task in config.names() for algorithm in config.algorithms]
    return [policy for path in paths for policy in json.loads(path.read_text())["policies"]]


def complete_cells(config: BenchDsrlConfig, out: Path) -> None:
    """Does every cell that is not done yet."""
    missing = {
        task: algorithms
        for task in config.names()
        if (algorithms := [name for name in config.algorithms if not _is_done(config, out, task, name)])
    }
    _check_ready(config, missing)
    policies = sum(config.policies_of(task, name) for task, names in missing.items() for name in names)
    with terminal.progress(policies * config.steps, "updates") as advance:
        for task, algorithms in missing.items():
            dataset, source = logs_of(config, out, task)
            plans = [plan(config, task, name, dataset) for name in algorithms]
            assessor = assessor_of(dataset, plans[0])
            for each in plans:
                where = out / "runs" / task / each.algorithm
                outcome = directory.train(where, each, dataset, source, _progress(task, each, advance))
                advance(f"{task} {each.algorithm}, simulating", 0)
                cell = {
                    "asked": config.asked(task, each.algorithm),
                    "policies": records(config, task, outcome, assessor),
                }
                path = _path(out, task, each.algorithm)
                output_directory(path.parent)
                write_json(path, cell)


def _path(out: Path, task: str, algorithm: str) -> Path:
    return out / "cells" / task / f"{algorithm}.json"


def _is_done(config: BenchDsrlConfig, out: Path, task: str, algorithm: str) -> bool:
    return is_done(_path(out, task, algorithm), config.asked(task, algorithm))


def _check_ready(config: BenchDsrlConfig, tasks: Collection[str]) -> None:
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


def _progress(task: str, plan: Plan, advance: Callable[..., None]) -> directory.Progress:
    return lambda step, _, fresh: advance(f"{task} {plan.algorithm}, step {step:,}", fresh * len(plan.members))


def logs_of(config: BenchDsrlConfig, out: Path, task: str) -> tuple[Dataset, str]:
    """The logs of a task and where they are: a given file, DSRL's, or made here, always the same."""
    file = config.files().get(task)
    if task in EMBEDDED and file is None:
        path = output_directory(out / "data") / f"{task}.hdf5"
        dataset = envs.collect(envs.task_by_name(task), DATA_SEED, config.logged_episodes)
        data.write(dataset, path)
        return dataset, str(path)
    source = str(file or f"dsrl:{task}")
    return data.check(data.read(source)), source


def plan(config: BenchDsrlConfig, task: str, algorithm: str, dataset: Dataset) -> Plan:
    known = find_dsrl_task(task)
    return plan_of(
        algorithm,
        dataset,
        list(config.limits_of(task)),
        horizon=known.horizon if known else envs.task_by_name(task).horizon,
        alphas=list(config.alphas_of(algorithm)),
        seeds=config.seeds,
        options={"steps": config.steps, "widths": config.widths, "batch_size": config.batch_size},
    )


def assessor_of(dataset: Dataset, plan: Plan) -> Assessor:
    """Of all algorithms on these logs: they hold the same episodes out and have the same units."""
    train, held_out = split(dataset, plan.holdout)
    return Assessor(evidence_of(held_out, units_for(train, plan), plan.horizon, plan.discount))


def records(config: BenchDsrlConfig, task: str, outcome: Outcome, assessor: Assessor) -> list[Record]:
    """One for each member of the population, in its order; None for all numbers of one that failed."""
    plan = outcome.plan
    trained = [index for index in range(len(plan.members)) if index not in outcome.failures]
    policies = [outcome.policy(index) for index in trained]
    truths = []
    if policies:
        truths = simulate_each(policies, task, config.episodes, EVALUATION_SEED, plan.discount, config.workers)
    keys = product(config.limits_of(task), config.alphas_of(plan.algorithm) or [None], range(config.seeds))
    found: list[Record] = [
        {"task": task, "algorithm": plan.algorithm, "cost_limit": limit, "seed": seed, "alpha": alpha}
        | {"failure": outcome.failures.get(index)}
        | dict.fromkeys(NUMBERS)
        for index, (limit, alpha, seed) in enumerate(keys)
    ]
    for index, policy, truth in zip(trained, policies, truths, strict=True):
        estimate = assessor.record(assessor.ask(policy), plan.members[index].limit)
        found[index] |= {
            **{name: truth[name] for name in ("return", "return_se", "cost", "cost_se")},
            "normalised_return": normalised_return(task, truth["return"], outcome.data),
            "normalised_cost": normalised_cost(truth["cost"], found[index]["cost_limit"]),
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
