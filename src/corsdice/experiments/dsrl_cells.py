"""The cells of DSRL's protocol: an algorithm on a task, trained, estimated from logs alone, simulated.

A cell is of one limit; of a family, which is trained for none, of all limits that choose from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from corsdice import data, envs
from corsdice.algorithms import by_name
from corsdice.data.dataset import Dataset
from corsdice.data.dsrl import dsrl_file, find_dsrl_task, normalised_cost
from corsdice.data.split import Split, split
from corsdice.envs.simulate import simulate_each
from corsdice.errors import UserError
from corsdice.experiments.bench_dsrl_config import EMBEDDED, BenchDsrlConfig, ProtocolConfig
from corsdice.experiments.cells import answer, keep
from corsdice.experiments.executors import execute
from corsdice.experiments.families import traced_once
from corsdice.experiments.selection import Record
from corsdice.files import output_directory
from corsdice.ope import evidence_of
from corsdice.ope.frontier import Frontier
from corsdice.policy_family import PolicyFamily
from corsdice.report import terminal
from corsdice.training import directory
from corsdice.training.assess import Assessor
from corsdice.training.run import Outcome, Plan, plan_of
from corsdice.training.ship import Groups, Models, Shipped, by_member, by_seed, models_of, shipped

CHOICE = ("way", "multiplier", "imitation")
"""Of a family: which of its policies a limit has chosen; λ is in standard units."""
NUMBERS = (
    *("return", "return_se", "cost", "cost_se", "normalised_return", "normalised_cost"),
    *("estimated_return", "estimated_cost", "estimated_cost_low", "estimated_cost_high", "verdict"),
    *CHOICE,
)
"""Of a policy; one that failed in training has none."""
DATA_SEED, EVALUATION_SEED = 0, 1


class Cell(NamedTuple):
    """Policies, by limit, α and seed, of an algorithm on a task: all members, or those from one to another."""

    config: ProtocolConfig
    out: Path
    task: str
    algorithm: str
    limits: tuple[float, ...]
    """One, or of a family any."""
    members: tuple[int, int]
    options: tuple[tuple[str, Any], ...] = ()
    """Of the algorithm, beside those that all cells share."""
    ways: tuple[str, ...] = ()
    """Of a family, each with a choice of its own; unless said, there is one choice among all."""

    @property
    def logs(self) -> str:
        return self.task

    @property
    def is_family(self) -> bool:
        return by_name(self.algorithm).is_family

    @property
    def name(self) -> str:
        limits = (f"{limit:g}" for limit in self.limits)
        return "-".join(("limit", *limits, *self.ways)) + self._part

    @property
    def run(self) -> Path:
        name = f"any-limit{self._part}" if self.is_family else self.name
        return self.out / "runs" / self.task / self.algorithm / name

    @property
    def results(self) -> Path:
        return self.out / "cells" / self.task / self.algorithm / f"{self.name}.json"

    @property
    def trained(self) -> int:
        """How many members are trained."""
        start, stop = self.members
        return stop - start

    @property
    def _part(self) -> str:
        start, stop = self.members
        return "" if self.trained == self.config.members_of(self.algorithm) else f"-members-{start}-{stop}"

    def __str__(self) -> str:
        return f"{self.task} {self.algorithm}, {self.name.replace('-', ' ')}"

    @property
    def asked(self) -> dict[str, object]:
        asked = self.config.asked(self.task, self.algorithm) | {"limits": list(self.limits), "ways": list(self.ways)}
        return asked | dict(self.options)


def cells_of(config: BenchDsrlConfig, out: Path) -> list[Cell]:
    return [
        Cell(config, out.resolve(), task, algorithm, limits, members)
        for task in config.names()
        for algorithm in config.algorithms
        for limits in limits_of_cells(config, task, algorithm)
        for members in config.parts_of(algorithm)
    ]


def limits_of_cells(config: ProtocolConfig, task: str, algorithm: str) -> list[tuple[float, ...]]:
    """All limits of the task in one cell, where one training serves them, or each in a cell of its own."""
    limits = config.limits_of(task)
    return [limits] if by_name(algorithm).is_family else [(limit,) for limit in limits]


def read_cells(cells: Sequence[Cell]) -> list[Record]:
    """The policies of all cells, which must be done."""
    return [policy for cell in cells for policy in answer(cell.results, cell.asked)]


def complete_cells(config: ProtocolConfig, cells: Sequence[Cell]) -> None:
    """Does every cell that is not done yet."""
    missing = [cell for cell in cells if answer(cell.results, cell.asked) is None]
    _check_ready(config, dict.fromkeys(cell.task for cell in missing))
    with terminal.progress(sum(cell.trained for cell in missing) * config.steps, "updates") as advance:
        if config.executor == "here":
            for cell in execute(config, missing, load, partial(work, advance=advance)):
                advance(f"{cell}, done", 0)
        else:
            for cell in execute(config, missing, load, work):
                advance(f"{cell}, done", cell.trained * config.steps)


@lru_cache(maxsize=1)
def _logs(config: ProtocolConfig, out: Path, task: str) -> tuple[Dataset, str]:
    return logs_of(config.files(), config.logged_episodes, out, task)


def load(cell: Cell) -> tuple[Dataset, str]:
    return _logs(cell.config, cell.out, cell.task)


def work(cell: Cell, logs: tuple[Dataset, str], advance: Callable[..., None] | None = None) -> None:
    """Trains, estimates and simulates; what is trained is not trained again."""

    def progress(step: int, _: Any, fresh: int) -> None:
        if advance:
            advance(f"{cell}, step {step:,}", fresh * cell.trained)

    dataset, source = logs
    outcome = directory.train(cell.run, plan(cell, dataset), dataset, source, progress)
    if advance:
        advance(f"{cell}, estimating and simulating", 0)
    keep(cell.results, cell.asked, records(cell, outcome, dataset))


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


def logs_of(files: Mapping[str, Path], logged_episodes: int, out: Path, task: str) -> tuple[Dataset, str]:
    """The logs of a task and where they are: a given file, DSRL's, or made here, always the same."""
    file = files.get(task)
    if task in EMBEDDED and file is None:
        path = output_directory(out / "data") / f"{task}.hdf5"
        dataset = envs.collect(envs.task_by_name(task), DATA_SEED, logged_episodes)
        data.write(dataset, path)
        return dataset, str(path)
    source = str(file or f"dsrl:{task}")
    return data.check(data.read(source)), source


def plan(cell: Cell, dataset: Dataset) -> Plan:
    config, known = cell.config, find_dsrl_task(cell.task)
    whole = plan_of(
        cell.algorithm,
        dataset,
        list(cell.limits),
        horizon=known.horizon if known else envs.task_by_name(cell.task).horizon,
        alphas=list(config.alphas_of(cell.algorithm)),
        seeds=config.seeds,
        options={"steps": config.steps, "widths": config.widths, "batch_size": config.batch_size} | dict(cell.options),
    )
    if cell.is_family:
        return replace(whole, members=tuple(each for each in whole.members if each.seed in range(*cell.members)))
    return replace(whole, members=whole.members[slice(*cell.members)])


class Shared(NamedTuple):
    """What all algorithms on the same logs share: they hold the same episodes out and have the same units."""

    parts: Split
    models: Models
    assessor: Assessor
    """On the logs that nothing was trained on or chosen by."""


_shared: dict[tuple[Any, ...], Shared] = {}
"""The last one used: what was fitted to the logs serves all algorithms and limits of a task."""


def shared_by(outcome: Outcome, dataset: Dataset) -> Shared:
    plan = outcome.plan
    key = (outcome.data["sha256"], plan.holdout, plan.config.standardise, plan.horizon, plan.discount)
    if key not in _shared:
        _shared.clear()
        parts = split(dataset, plan.holdout)
        models = models_of(outcome, parts)
        evidence = evidence_of(parts.judge, outcome.units, plan.horizon, plan.discount)
        _shared[key] = Shared(parts, models, Assessor(evidence, models))
    return _shared[key]


Place = tuple[str | None, float, int]
"""A way to act or any, a limit, and the number of a policy among those of its limit."""


def records(cell: Cell, outcome: Outcome, dataset: Dataset) -> list[Record]:
    """One for each way, limit and member of the population, in their order; no numbers of one that failed."""
    config, task, algorithm = cell.config, cell.task, cell.algorithm
    alphas = config.alphas_of(algorithm)
    keys = list(product([None] if cell.is_family else alphas or [None], range(config.seeds)))[slice(*cell.members)]
    groups = list(groups_of(cell, outcome.plan).values())
    found: dict[Place, Record] = {
        (way, limit, place): {"task": task, "algorithm": algorithm, "cost_limit": limit, "seed": seed, "alpha": alpha}
        | {"failure": failure_of(outcome, groups[place])}
        | dict.fromkeys(NUMBERS)
        | {"way": way}
        for way in cell.ways or (None,)
        for limit in cell.limits
        for place, (alpha, seed) in enumerate(keys)
    }
    if len(outcome.failures) == len(outcome.plan.members):
        return list(found.values())
    shared = shared_by(outcome, dataset)
    policies = policies_of(cell, outcome, shared)
    # Nothing discounted is asked for: episodes need not run on beyond their time limit.
    acting = [each.policy for each in policies.values()]
    truths = simulate_each(acting, task, config.episodes, EVALUATION_SEED, 0.0, config.workers)
    for (place, each), truth in zip(policies.items(), truths, strict=True):
        estimate = shared.assessor.record(each.policy, each.limit)
        found[place] |= {
            **{name: truth[name] for name in ("return", "return_se", "cost", "cost_se")},
            "normalised_return": normalised_return(task, truth["return"], outcome.data),
            "normalised_cost": normalised_cost(truth["cost"], found[place]["cost_limit"]),
            "estimated_return": estimate["return"]["value"],
            "estimated_cost": estimate["cost"]["value"],
            "estimated_cost_low": estimate["cost"]["low"],
            "estimated_cost_high": estimate["cost"]["high"],
            "verdict": estimate["verdict"],
            **{name: each.policy.about.get(name) for name in CHOICE},
            **({"alpha": each.policy.about["alpha"]} if cell.is_family else {}),
        }
    return list(found.values())


def groups_of(cell: Cell, plan: Plan) -> Groups:
    """What a limit chooses among: of a family all α of a seed, of others one member."""
    return by_seed(plan) if cell.is_family else by_member(plan)


def failure_of(outcome: Outcome, members: Sequence[int]) -> str | None:
    """Why none of these members was trained to the end."""
    reasons = [outcome.failures.get(index) for index in members]
    return reasons[0] if all(reasons) else None


def policies_of(cell: Cell, outcome: Outcome, shared: Shared) -> dict[Place, Shipped]:
    """What ships of the members that were trained to the end."""
    family = traced_once(cell.run, outcome, shared.parts, shared.models) if cell.is_family else None
    groups = groups_of(cell, outcome.plan)
    place_of = {member: place for place, members in enumerate(groups.values()) for member in members}
    return {
        (way, limit, place_of[member]): each
        for way in cell.ways or (None,)
        for limit in cell.limits
        for each in shipped(outcome, [limit], family and acting_by(family, way), groups)
        if (member := int(each.policy.about["member"])) not in outcome.failures
    }


def acting_by(family: PolicyFamily, way: str | None) -> PolicyFamily:
    """The family where it acts in one way alone."""
    if way is None:
        return family
    points = tuple(each for each in family.frontier.points if each.point.way == way)
    return replace(family, frontier=Frontier(points))


def normalised_return(task: str, episode_return: float, logs: dict[str, Any]) -> float:
    """As DSRL has it; where DSRL has no such task, 0 and 1 are the least and the largest return in the logs."""
    if known := find_dsrl_task(task):
        return known.normalised_return(episode_return)
    low, high = logs["lowest_return"], logs["highest_return"]
    return float((episode_return - low) / (high - low))
