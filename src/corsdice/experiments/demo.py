"""The whole product on an embedded task: logs made, methods trained on them, each estimated and then really run.

CORSDICE is trained once for all limits; BC-Safe clones, for each limit, the episodes within it; BC-All clones
everything. The estimates know the logs alone; the truth is simulated.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from corsdice import data, envs
from corsdice.data.split import Split, split
from corsdice.envs.simulate import simulate
from corsdice.experiments.configs import DemoConfig
from corsdice.files import output_directory, provenance, write_json
from corsdice.report import html, terminal
from corsdice.report.run import run_report
from corsdice.training import assess, directory
from corsdice.training.run import Outcome, plan_of
from corsdice.training.ship import Models, by_seed, models_of, shipped, traced

BASELINES = ("bc-all",)
"""At the middle limit alone, one seed."""
UNIT = "undiscounted sum over an episode"


def run(config: DemoConfig) -> None:
    started = time.perf_counter()
    out = output_directory(config.out)
    task = envs.task_by_name(config.task)
    logs = out / f"{config.task}.hdf5"
    dataset = envs.collect(task, config.data_seed, config.episodes)
    data.write(dataset, logs)
    print(f"Wrote {dataset.transitions:,} transitions of {config.episodes:,} scripted drivers to {logs}")
    limits = list(config.limits)
    middle = limits[len(limits) // 2]
    jobs = [("corsdice", limits, config.seeds), ("bc-safe", limits, 1), *((name, [middle], 1) for name in BASELINES)]
    parts: Split | None = None
    models: Models | None = None
    rows: list[dict[str, Any]] = []
    with terminal.progress(len(jobs), "methods") as advance:
        for method, wanted, seeds in jobs:
            steps = config.clone_steps if method.startswith("bc-") else config.steps
            options = {"steps": steps, "widths": config.widths, "batch_size": config.batch_size}
            plan = plan_of(method, dataset, wanted, horizon=task.horizon, seeds=seeds, options=options)
            outcome = directory.train(out / method, plan, dataset, str(logs))
            parts = parts or split(dataset, plan.holdout)
            models = models or models_of(outcome, parts)
            rows += results(out / method, outcome, parts, models, wanted, config)
            advance(method)
    html.write(run_report(out / "corsdice"), out / "corsdice" / directory.REPORT)
    show(rows, config)
    write_json(out / "summary.json", rows)
    write_json(out / "provenance.json", provenance(config, time.perf_counter() - started))
    terminal.print_written(out, ("summary.json", f"corsdice/{directory.REPORT}"))


def results(
    where: Path, outcome: Outcome, parts: Split, models: Models, limits: list[float], config: DemoConfig
) -> list[dict[str, Any]]:
    """What is estimated of each policy of a run, and what is true."""
    method = outcome.plan.algorithm
    family = None
    if method == "corsdice":
        family = traced(outcome, parts, models)
        family.save(where / directory.FAMILY)
    policies = shipped(outcome, limits, family, by_seed(outcome.plan))
    if family is not None:
        directory.save_shipped(where, policies)
    estimates = assess.assess(outcome, policies, assess.assessor_of(outcome, parts.judge, models))
    write_json(where / directory.ESTIMATES, {"results": estimates})
    rows, truths = [], []
    for each, found in zip(policies, estimates, strict=True):
        truth = simulate(each.policy, config.task, config.truth_episodes, seed=1)
        truths.append({"member": each.name, "env": config.task} | truth)
        rows.append(
            {
                "method": method,
                "seed": each.policy.about["seed"],
                "cost_limit": each.limit.episode,
                "return": truth["return"],
                "cost": truth["cost"],
                "cost_se": truth["cost_se"],
                "estimated_return": found["return"]["value"],
                "estimated_cost": found["cost"]["value"],
                "estimated_cost_low": found["cost"]["low"],
                "estimated_cost_high": found["cost"]["high"],
                "estimate_unit": UNIT,
                "verdict": found["verdict"],
            }
        )
    write_json(where / directory.EVALUATION, {"results": truths})
    return rows


def show(rows: list[dict[str, Any]], config: DemoConfig) -> None:
    terminal.print_table(
        f"{config.task}: sums over an episode; truth from {config.truth_episodes:,} episodes",
        ("limit", "method, seed", "return", "cost", "est. return", "est. cost", "verdict"),
        [
            (
                f"{limit:g}",
                f"{row['method']} {row['seed']}",
                f"{row['return']:.0f}",
                f"{row['cost']:.1f}" if row["cost"] <= limit else f"({row['cost']:.1f})",
                f"{row['estimated_return']:.0f}",
                f"{row['estimated_cost']:.1f} ± {(row['estimated_cost_high'] - row['estimated_cost_low']) / 2:.1f}",
                row["verdict"],
            )
            for row in sorted(rows, key=lambda row: row["cost_limit"])
            for limit in [row["cost_limit"]]
        ],
    )
    print("In brackets: over the limit. est.: from logs alone, ± half a 95 % interval.")
