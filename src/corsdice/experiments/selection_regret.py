"""What it costs to choose a policy of a family without a simulator: the choice by logs beside the oracle's.

A repetition has logs, a family and a choice of its own. The oracle chooses by simulation among policies of the same
frontier that no other is estimated to beat, and the choice by logs.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import numpy as np

from corsdice import envs
from corsdice.costs import CostLimit
from corsdice.data.dsrl import normalised_cost
from corsdice.data.split import split
from corsdice.envs.simulate import simulate_each
from corsdice.experiments.cells import kept
from corsdice.experiments.families import traced_once
from corsdice.experiments.selection import Record, beside_oracle
from corsdice.experiments.selection_config import SelectionConfig
from corsdice.files import output_directory, provenance, write_csv, write_json
from corsdice.ope import evidence_of
from corsdice.ope.frontier import Frontier, FrontierPoint
from corsdice.report import terminal
from corsdice.training import directory
from corsdice.training.assess import Assessor
from corsdice.training.run import plan_of
from corsdice.training.ship import models_of

HOLDOUT = 0.5
TRUTH_SEED = 1
NUMBERS = (
    *("alpha", "seed", "way", "multiplier", "imitation"),
    *("estimated_return", "estimated_cost", "estimated_cost_high", "return", "cost"),
)
COLUMNS = (
    *("task", "repetition", "cost_limit", "candidates", "verdict"),
    *(f"chosen_{name}" for name in NUMBERS),
    *(f"oracle_{name}" for name in NUMBERS),
    *("safe", "safe_possible", "regret", "regret_percent"),
)


def run(config: SelectionConfig) -> None:
    started = time.perf_counter()
    out = output_directory(config.out)
    rows: list[Record] = []
    with terminal.progress(len(config.tasks) * config.repetitions, "repetitions") as advance:
        for task in config.tasks:
            for repetition in range(config.repetitions):
                cell = out / "cells" / task / f"{repetition}.json"
                content = kept(cell, config.asked(), partial(repeat, config, task, repetition))
                rows.append(row(task, repetition, content["verdict"], content["candidates"]))
                advance(f"{task} {repetition}")
    summary = [summarise(task, [each for each in rows if each["task"] == task]) for task in config.tasks]
    show(summary)
    write_csv(out / "results.csv", COLUMNS, ([each[name] for name in COLUMNS] for each in rows))
    write_json(out / "summary.json", summary)
    write_json(out / "provenance.json", provenance(config, time.perf_counter() - started))
    terminal.print_written(out, ("results.csv", "summary.json"))


def repeat(config: SelectionConfig, task: str, repetition: int) -> dict[str, Any]:
    """The candidates, first the choice by logs, and what logs that had no part in the choice say of it."""
    dataset = envs.collect(envs.task_by_name(task), repetition, config.episodes)
    plan = plan_of(
        "corsdice",
        dataset,
        [],
        alphas=list(config.alphas),
        seeds=config.seeds,
        holdout=HOLDOUT,
        options={"steps": config.steps, "widths": config.widths, "batch_size": config.batch_size},
    )
    where = config.out / "runs" / task / str(repetition)
    outcome = directory.train(where, plan, dataset, f"{task}, data seed {repetition}")
    parts = split(dataset, HOLDOUT)
    models = models_of(outcome, parts)
    family = traced_once(where, outcome, parts, models)
    points = candidates_of(family.frontier, config.limit, config.candidates)
    policies = [family.policy(each, config.limit) for each in points]
    truths = simulate_each(policies, task, config.truth_episodes, TRUTH_SEED)
    evidence = evidence_of(parts.judge, outcome.units, plan.horizon, plan.discount)
    assessor = Assessor(evidence, models)
    limit = CostLimit.episodic(config.limit, horizon=plan.horizon, discount=plan.discount)
    judged = assessor.record(policies[0], limit)
    jax.clear_caches()  # what other logs compile holds memory maps, of which a process has only so many
    return {
        "verdict": judged["verdict"],
        "candidates": [
            {name: policy.about[name] for name in ("alpha", "seed", "way", "multiplier", "imitation")}
            | {"cost_limit": config.limit}
            | {"estimated_return": point.returned.value}
            | {"estimated_cost": point.cost.value, "estimated_cost_high": point.cost.high}
            | {name: truth[name] for name in ("return", "return_se", "cost", "cost_se")}
            | {"normalised_cost": normalised_cost(truth["cost"], config.limit)}
            for point, policy, truth in zip(points, policies, truths, strict=True)
        ],
    }


def candidates_of(frontier: Frontier, limit: float, count: int) -> list[FrontierPoint]:
    """The choice for the limit, and so many of the efficient policies, evenly along the frontier."""
    chosen, efficient = frontier.nearest(limit), frontier.efficient()
    places = np.linspace(0, len(efficient) - 1, min(count, len(efficient))).round().astype(int)
    return [chosen, *(efficient[place] for place in places if efficient[place] != chosen)]


def row(task: str, repetition: int, verdict: str, candidates: list[Record]) -> Record:
    chosen = candidates[0]
    worth = beside_oracle(chosen, candidates)
    oracle = worth.pop("oracle")
    return {
        "task": task,
        "repetition": repetition,
        "cost_limit": chosen["cost_limit"],
        "candidates": len(candidates),
        "verdict": verdict,
        **{f"chosen_{name}": chosen[name] for name in NUMBERS},
        **{f"oracle_{name}": oracle[name] for name in NUMBERS},
        **worth,
    }


def summarise(task: str, rows: list[Record]) -> dict[str, Any]:
    """Of a task's repetitions; a choice can be blamed only where some candidate was safe."""
    possible = [each for each in rows if each["safe_possible"]]
    return {
        "task": task,
        "repetitions": len(rows),
        "safe_possible": len(possible),
        "unsafe": sum(not each["safe"] for each in possible),
        "known_safe": sum(each["verdict"] == "meets" for each in rows),
        "known_safe_but_unsafe": sum(each["verdict"] == "meets" and not each["safe"] for each in rows),
        "regret_percent": _mean_regret(possible),
        "regret_percent_of_safe": _mean_regret([each for each in possible if each["safe"]]),
    }


def _mean_regret(rows: list[Record]) -> float | None:
    known = [each["regret_percent"] for each in rows if each["regret_percent"] is not None]
    return float(np.mean(known)) if known else None


def show(summary: list[dict[str, Any]]) -> None:
    def percent(value: float | None) -> str:
        return "-" if value is None else f"{value:.1f} %"

    terminal.print_table(
        "The choice by logs alone beside the oracle's; regret in % of the oracle's return",
        ("task", "choices", "some safe", "unsafe", "said to meet", "wrongly", "regret", "if safe"),
        [
            (
                each["task"],
                *(str(each[name]) for name in ("repetitions", "safe_possible", "unsafe", "known_safe")),
                str(each["known_safe_but_unsafe"]),
                percent(each["regret_percent"]),
                percent(each["regret_percent_of_safe"]),
            )
            for each in summary
        ],
    )
    print("some safe: the simulated cost of a candidate is within the limit; unsafe: there, that of the choice is not")
