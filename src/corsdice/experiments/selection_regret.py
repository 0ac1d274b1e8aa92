"""What it costs to choose α, seed and checkpoint without a simulator: the choice by logs beside the oracle's.

A repetition has logs, a population and a choice of its own. Every candidate is simulated, for the oracle and the truth.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from corsdice import envs
from corsdice.errors import UserError
from corsdice.experiments.selection import Record, beside_oracle, offline_choice
from corsdice.experiments.selection_config import SelectionConfig
from corsdice.files import output_directory, provenance, write_csv, write_json
from corsdice.report import terminal
from corsdice.training import candidates, directory
from corsdice.training.run import plan_of, split

HOLDOUT = 0.5
TRUTH_SEED = 1
NUMBERS = ("alpha", "seed", "step", "verdict", "estimated_return", "estimated_cost", "return", "cost")
COLUMNS = (
    *("task", "repetition", "cost_limit", "candidates"),
    *(f"chosen_{name}" for name in NUMBERS),
    *(f"oracle_{name}" for name in NUMBERS),
    *("safe", "safe_possible", "regret", "regret_percent"),
)


def run(config: SelectionConfig) -> None:
    started = time.perf_counter()
    out = output_directory(config.out)
    rows: list[Record] = []
    policies = len(config.alphas) * config.seeds * config.keep
    with terminal.progress(len(config.tasks) * config.repetitions * policies, "policies") as advance:
        for task in config.tasks:
            for repetition in range(config.repetitions):
                path = output_directory(out / "cells" / task) / f"{repetition}.json"
                known = policies if path.exists() else 0
                rows.append(row(task, repetition, _records(config, path, task, repetition, advance)))
                advance(f"{task} {repetition}", known)
    summary = [summarise(task, [each for each in rows if each["task"] == task]) for task in config.tasks]
    show(summary)
    write_csv(out / "results.csv", COLUMNS, ([each[name] for name in COLUMNS] for each in rows))
    write_json(out / "summary.json", summary)
    write_json(out / "provenance.json", provenance(config, time.perf_counter() - started))
    terminal.print_written(out, ("results.csv", "summary.json"))


def _records(
    config: SelectionConfig, cell: Path, task: str, repetition: int, advance: Callable[..., None]
) -> list[Record]:
    """All candidates of a repetition; a cell that is done must be of the same settings."""
    if not cell.exists():
        found = repeat(config, task, repetition, advance)
        write_json(cell, {"asked": config.asked(), "candidates": found})
    content = json.loads(cell.read_text())
    for name, value in config.asked().items():
        if (made := content["asked"].get(name)) != value:
            raise UserError(f"{cell} was made with {name} {made}, now {value}: choose another --out")
    records: list[Record] = content["candidates"]
    return records


def repeat(config: SelectionConfig, task: str, repetition: int, advance: Callable[..., None]) -> list[Record]:
    dataset = envs.collect(envs.task_by_name(task), repetition, config.episodes)
    plan = plan_of(
        "corsdice",
        dataset,
        [config.limit],
        alphas=list(config.alphas),
        seeds=config.seeds,
        holdout=HOLDOUT,
        keep=config.keep,
        options={"steps": config.steps, "widths": config.widths, "batch_size": config.batch_size},
    )
    where = config.out / "runs" / task / str(repetition)
    source = f"{task}, data seed {repetition}"
    directory.train(where, plan, dataset, source, lambda step, *_: advance(f"{source}, step {step:,}", 0))
    estimates = candidates.estimates(split(dataset, HOLDOUT)[1], config.evidence_rows)
    truths = candidates.truths(task, config.truth_episodes, TRUTH_SEED, workers=1)
    records = []
    for candidate in candidates.candidates_of(where):
        known = candidates.found(estimates, candidate) | candidates.found(truths, candidate)
        records.append(candidate.about | known)
        advance(f"{source}, estimates")
    jax.clear_caches()  # what other logs compile holds memory maps, of which a process has only so many
    return records


def row(task: str, repetition: int, records: list[Record]) -> Record:
    chosen = offline_choice(records)
    worth = beside_oracle(chosen, records)
    oracle = worth.pop("oracle")
    return {
        "task": task,
        "repetition": repetition,
        "cost_limit": chosen["cost_limit"],
        "candidates": len(records),
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
        "known_safe": sum(each["chosen_verdict"] == "meets" for each in rows),
        "known_safe_but_unsafe": sum(each["chosen_verdict"] == "meets" and not each["safe"] for each in rows),
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
