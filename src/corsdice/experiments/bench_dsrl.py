"""DSRL's protocol (Liu et al. 2023): normalised return and cost at several limits, as Table 2 of the paper has them.

What is done is on disk, and a second run goes on from there:

    runs/TASK/ALGORITHM/limit-C/        the training run: α x seeds
    runs/TASK/FAMILY/any-limit/         that of a family, trained once for all limits, with its frontier
    cells/TASK/ALGORITHM/limit-C.json   what was asked for, and what each policy is estimated and simulated to do
    cells/TASK/FAMILY/limit-C-D.json    the same of the policies that the limits have chosen from a family
    data/TASK.hdf5                      the logs of an embedded task
    results.csv                 one line for each policy, and for each choice among those that differ in α alone
    table.csv, .tex, .html      Table 2, and the same by limit
    summary.json                interquartile means with intervals, and what failed in training
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corsdice.data.dsrl import find_dsrl_task
from corsdice.experiments.bench_dsrl_config import BenchDsrlConfig
from corsdice.experiments.dsrl_cells import CHOICE, cells_of, complete_cells, read_cells
from corsdice.experiments.published import published_scores
from corsdice.experiments.selection import Record, selected
from corsdice.experiments.statistics import interquartile_interval
from corsdice.files import atomic, output_directory, provenance, write_csv, write_json
from corsdice.report import benchmark, terminal
from corsdice.training import directory

COLUMNS = (
    "task",
    "algorithm",
    "cost_limit",
    "seed",
    "alpha",
    "selection",
    "return",
    "cost",
    "normalised_return",
    "normalised_cost",
    "estimated_cost",
    *CHOICE,
)


def run(config: BenchDsrlConfig) -> None:
    started = time.perf_counter()
    out = output_directory(config.out)
    cells = cells_of(config, out)
    try:
        complete_cells(config, cells)
    except KeyboardInterrupt:
        raise directory.Stopped(f"stopped; what is done is in {out}: run the same command again to go on") from None
    write(config, out, read_cells(cells))
    write_json(out / "provenance.json", provenance(config, time.perf_counter() - started))
    terminal.print_written(out, ("results.csv", "table.csv", "table.tex", "table.html", "summary.json"))


def write(config: BenchDsrlConfig, out: Path, policies: Sequence[Record]) -> None:
    results = list(selected(policies))
    published = published_scores(config.names(), config.tight) if config.published else {}
    means = benchmark.mean_tables(results, {task: suite_of(task) for task in config.names()}, published)
    by_limit = benchmark.limit_tables(results)
    summary = summarise(results)
    notes = [*benchmark.ABOUT, *notes_on(config), *failures(policies)]
    write_csv(out / "results.csv", COLUMNS, ([result[name] for name in COLUMNS] for result in results))
    write_csv(out / "table.csv", benchmark.CSV_COLUMNS, benchmark.csv_rows([*means, *by_limit]))
    write_json(out / "summary.json", {"interquartile_means": summary, "failures": failures(policies)})
    write_text(out / "table.tex", benchmark.latex([*means, *by_limit]))
    write_text(out / "table.html", benchmark.html("DSRL's protocol", summary, means, by_limit, notes))
    for table in means:
        benchmark.print_table(table)
    benchmark.print_summary(summary)
    print("\n".join(notes))


def write_text(path: Path, text: str) -> None:
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def suite_of(task: str) -> str:
    known = find_dsrl_task(task)
    return known.suite if known else "embedded"


def summarise(results: Sequence[Record]) -> list[dict[str, Any]]:
    """For each selection and algorithm: interquartile means over tasks and seeds, and how many policies are safe.

    Policies of one seed see the same draws, whatever their limit, so a seed's mean over limits is one value.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for selection in benchmark.SELECTIONS:
        for result in results:
            if result["selection"] == selection and result["failure"] is None:
                groups.setdefault((selection, result["algorithm"]), []).append(result)
    return [
        {
            "selection": selection,
            "algorithm": algorithm,
            **{name: interquartile_interval(strata(chosen, name))._asdict() for name in benchmark.Score._fields},
            "safe_share": float(np.mean([result["normalised_cost"] <= 1 for result in chosen])),
        }
        for (selection, algorithm), chosen in groups.items()
    ]


def strata(results: Sequence[Record], quantity: str) -> list[np.ndarray]:
    """For each task, the mean of each seed."""
    values: dict[str, dict[int, list[float]]] = {}
    for result in results:
        values.setdefault(result["task"], {}).setdefault(result["seed"], []).append(result[quantity])
    return [np.array([np.mean(each) for each in seeds.values()]) for seeds in values.values()]


def notes_on(config: BenchDsrlConfig) -> list[str]:
    files = config.files()
    notes = [
        f"{config.seeds} seeds, {config.episodes} episodes a policy, {config.steps:,} updates, "
        f"α {', '.join(f'{alpha:g}' for alpha in config.alphas)} (clones and actor-critics have none).",
        "Normalised cost: the cost over the limit. Normalised return: 0 at DSRL's least and 1 at its largest return.",
    ]
    if others := [task for task in config.names() if find_dsrl_task(task) is None]:
        notes.append(f"DSRL has no {', '.join(others)}: it is 0 at the least and 1 at the largest return in the logs.")
    if own := [f"{task} ({files[task]})" for task in files if find_dsrl_task(task)]:
        notes.append(f"Not on DSRL's own logs: {', '.join(own)}.")
    return notes


def failures(policies: Sequence[Record]) -> list[str]:
    """What failed in training, and so is in no mean."""
    return [
        f"No numbers for {policy['task']} {policy['algorithm']}, limit {policy['cost_limit']:g}, "
        f"seed {policy['seed']}, α {policy['alpha'] or 'none'}: {policy['failure']}."
        for policy in policies
        if policy["failure"] is not None
    ]
