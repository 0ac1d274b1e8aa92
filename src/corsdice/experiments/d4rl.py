"""The table of the paper's appendix G.2: unconstrained methods on nine locomotion tasks, by D4RL's normalised score.

What is done is on disk, and a second run goes on from there:

    data/TASK.hdf5              logs made here, in D4RL's grades
    runs/TASK/ALGORITHM/        the training run: one policy a seed
    cells/TASK/ALGORITHM.json   what was asked for, and what each policy is simulated to return
    results.csv                 one line for each policy
    summary.json                means over seeds, averages over tasks, and what was published beside them
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corsdice import data
from corsdice.algorithms.logs import units_of
from corsdice.data.d4rl import robot_of
from corsdice.data.dataset import Dataset
from corsdice.data.provenance import made_here
from corsdice.data.split import split
from corsdice.envs.grades import collect_grades
from corsdice.envs.mujoco import HORIZON, velocity_task
from corsdice.envs.simulate import simulate_each
from corsdice.errors import UserError
from corsdice.experiments.cells import answer, keep
from corsdice.experiments.d4rl_config import WITH_BETA, D4rlTableConfig
from corsdice.experiments.published import published_d4rl_scores
from corsdice.files import output_directory, provenance, write_csv, write_json
from corsdice.report import terminal
from corsdice.training import directory
from corsdice.training.run import Outcome, Plan, plan_of

Record = dict[str, Any]
COLUMNS = ("task", "algorithm", "seed", "return", "return_se", "score", "failure")
AVERAGE = "average"
DISCOUNT, EVALUATION_SEED = 0.99, 1


def run(config: D4rlTableConfig) -> None:
    started = time.perf_counter()
    out = output_directory(config.out)
    try:
        complete_cells(config, out)
    except KeyboardInterrupt:
        raise directory.Stopped(f"stopped; what is done is in {out}: run the same command again to go on") from None
    policies = [
        policy
        for task in config.tasks
        for algorithm in config.algorithms
        for policy in answer(cell_path(out, task, algorithm), config.asked(task, algorithm))
    ]
    summary = summarise(policies)
    write_csv(out / "results.csv", COLUMNS, ([policy[name] for name in COLUMNS] for policy in policies))
    write_json(out / "summary.json", summary)
    show(config, summary)
    for policy in policies:
        if policy["failure"]:
            print(f"No score for {policy['task']} {policy['algorithm']}, seed {policy['seed']}: {policy['failure']}.")
    write_json(out / "provenance.json", provenance(config, time.perf_counter() - started))
    terminal.print_written(out, ("results.csv", "summary.json"))


def cell_path(out: Path, task: str, algorithm: str) -> Path:
    return out / "cells" / task / f"{algorithm}.json"


def complete_cells(config: D4rlTableConfig, out: Path) -> None:
    """Does every cell that is not done yet."""
    missing = {
        task: algorithms
        for task in config.tasks
        if (
            algorithms := [
                name
                for name in config.algorithms
                if answer(cell_path(out, task, name), config.asked(task, name)) is None
            ]
        )
    }
    make_logs(config, out, missing.keys() - config.files().keys())
    updates = sum(map(len, missing.values())) * config.seeds * config.steps
    with terminal.progress(updates, "updates") as advance:
        for task, algorithms in missing.items():
            logs = logs_of(config, out, task)
            for algorithm in algorithms:
                complete_cell(config, out, task, algorithm, logs, advance)


def complete_cell(
    config: D4rlTableConfig,
    out: Path,
    task: str,
    algorithm: str,
    logs: tuple[Dataset, str],
    advance: Callable[..., None],
) -> None:
    def progress(step: int, _: object, fresh: int) -> None:
        advance(f"{task} {algorithm}, step {step:,}", fresh * config.seeds)

    plan = plan_for(config, algorithm, logs[0])
    outcome = directory.train(out / "runs" / task / algorithm, plan, *logs, progress)
    advance(f"{task} {algorithm}, simulating", 0)
    keep(cell_path(out, task, algorithm), config.asked(task, algorithm), records(config, task, outcome))


def made_path(out: Path, task: str) -> Path:
    return out / "data" / f"{task}.hdf5"


def make_logs(config: D4rlTableConfig, out: Path, tasks: Collection[str]) -> None:
    """Those that are not there yet, with one agent for all grades of a robot."""
    lacking = set()
    for task in tasks:
        path, robot = made_path(out, task), robot_of(task).name
        if not path.exists():
            lacking.add(robot)
        elif (data.provenance(path) or {}).get("settings") != config.collection(robot):
            raise UserError(f"{path} was made with other --collect options: choose another --out")
    for robot in sorted(lacking):
        write_grades(config, out, robot)


def write_grades(config: D4rlTableConfig, out: Path, robot: str) -> None:
    with terminal.progress(config.collect_steps + 3 * config.collect_transitions, "steps") as advance:
        grades = collect_grades(
            robot,
            config.collect_steps,
            config.collect_transitions,
            config.collect_snapshots,
            progress=lambda latest, steps: advance(f"{robot}, return {latest:,.0f}", steps),
        )
    output_directory(out / "data")
    about = made_here(config.collection(robot), packages=("jax", "numpy", "gymnasium", "mujoco"))
    for grade, dataset in grades.items():
        data.write(dataset, made_path(out, f"{robot}-{grade}"), about)


def logs_of(config: D4rlTableConfig, out: Path, task: str) -> tuple[Dataset, str]:
    """The logs of a task and where they are."""
    source = config.files().get(task) or made_path(out, task)
    dataset = data.check(data.read(source, needs_cost=False), needs_cost=False)
    robot = robot_of(task)
    found = dataset.observations.shape[1:], dataset.actions.shape[1:]
    if found != ((robot.observation_size,), (robot.action_size,)):
        sizes = f"{robot.observation_size} and {robot.action_size}"
        raise UserError(f"{source} has observations {found[0]} and actions {found[1]}, {robot.name} has {sizes}")
    return dataset, str(source)


def plan_for(config: D4rlTableConfig, algorithm: str, dataset: Dataset) -> Plan:
    """Learns from all episodes but two, the fewest that a plan can hold out: nothing is estimated. No cost counts."""
    holdout = 2 / len(dataset.episodes.starts)
    # The paper's α is in the unit of the raw reward.
    unit = 1 / float(units_of(split(dataset, holdout).train, DISCOUNT).reward_scale)
    options = {"steps": config.steps, "widths": config.widths, "batch_size": config.batch_size}
    options["layer_norm"] = config.layer_norm
    if algorithm in WITH_BETA:
        options["balance"] = config.beta
    return plan_of(
        algorithm,
        dataset,
        [0.0],
        horizon=HORIZON,
        alphas=[config.alpha * unit],
        seeds=config.seeds,
        holdout=holdout,
        options=options,
        settings={"discount": DISCOUNT},
    )


def records(config: D4rlTableConfig, task: str, outcome: Outcome) -> list[Record]:
    """One for each seed; one that failed in training has no numbers."""
    robot = robot_of(task)
    found: list[Record] = [
        dict.fromkeys(COLUMNS)
        | {"task": task, "algorithm": outcome.plan.algorithm, "seed": member.seed}
        | {"failure": outcome.failures.get(index)}
        for index, member in enumerate(outcome.plan.members)
    ]
    trained = [index for index in range(len(found)) if index not in outcome.failures]
    if trained:
        policies = [outcome.policy(index) for index in trained]
        env = velocity_task(robot.name).id
        truths = simulate_each(policies, env, config.episodes, EVALUATION_SEED, DISCOUNT, config.workers)
        for index, truth in zip(trained, truths, strict=True):
            found[index] |= {name: truth[name] for name in ("return", "return_se")}
            found[index]["score"] = robot.score(truth["return"])
    return found


def summarise(policies: Sequence[Record]) -> list[Record]:
    """For each task and algorithm the mean score over seeds and its standard error; then the averages over tasks."""
    published = published_d4rl_scores()
    seeds: dict[tuple[str, str], list[float]] = {}
    for policy in policies:
        scores = seeds.setdefault((policy["task"], policy["algorithm"]), [])
        if policy["score"] is not None:
            scores.append(policy["score"])
    found: list[Record] = [
        {
            "task": task,
            "algorithm": algorithm,
            "score": float(np.mean(scores)) if scores else None,
            "score_se": float(np.std(scores, ddof=1) / np.sqrt(len(scores))) if len(scores) > 1 else None,
            "seeds": len(scores),
            "published": published.get((task, algorithm)),
        }
        for (task, algorithm), scores in seeds.items()
    ]
    return found + [average(found, algorithm) for algorithm in dict.fromkeys(row["algorithm"] for row in found)]


def average(rows: Sequence[Record], algorithm: str) -> Record:
    """Over the tasks, whose errors are independent; nothing where a task has no number."""
    tasks = [row for row in rows if row["algorithm"] == algorithm]

    def over_tasks(name: str, mean: Any) -> float | None:
        values = [row[name] for row in tasks]
        return None if None in values else float(mean(values))

    return {
        "task": AVERAGE,
        "algorithm": algorithm,
        "score": over_tasks("score", np.mean),
        "score_se": over_tasks("score_se", lambda errors: np.linalg.norm(errors) / len(errors)),
        "seeds": min(row["seeds"] for row in tasks),
        "published": over_tasks("published", np.mean),
    }


def show(config: D4rlTableConfig, summary: Sequence[Record]) -> None:
    """A table for each grade, with the robots side by side, and the averages; what was published is in brackets."""
    rows = {(row["task"], row["algorithm"]): row for row in summary}
    tables: dict[str, list[str]] = {}
    for task in config.tasks:
        tables.setdefault(task.partition("-")[2], []).append(task)
    tables["all tasks"] = [AVERAGE]
    for title, tasks in tables.items():
        columns = (task.partition("-")[0] for task in tasks)
        lines = [(name, *(as_text(rows[task, name]) for task in tasks)) for name in config.algorithms]
        terminal.print_table(title, ("algorithm", *columns), lines)
    given = ", ".join(f"{task} ({file})" for task, file in config.files().items())
    print(f"Normalised scores, mean ± standard error, {config.seeds} seeds. In brackets: as published, on D4RL's data.")
    print(f"Ours are on logs made here, which are not D4RL's{given and f', but for those given: {given}'}.")


def as_text(row: Record) -> str:
    score, error, published = row["score"], row["score_se"], row["published"]
    ours = "failed" if score is None else f"{score:.1f}" if error is None else f"{score:.1f} ± {error:.1f}"
    return ours if published is None else f"{ours} ({published:.1f})"
