"""The whole product on an embedded task: logs made, five methods trained on them, each estimated and then really run.

BC-All and BC-Safe clone the logs, naive SemiDICE takes w(a|s) for the stationary correction, COptiDICE optimises the
stationary correction itself, CORSDICE extracts it. The estimates know the logs alone; the truth is simulated.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from corsdice import data, envs
from corsdice.envs.simulate import simulate
from corsdice.experiments.configs import DemoConfig
from corsdice.files import output_directory, provenance, write_json
from corsdice.ope import evidence_of
from corsdice.report import html, terminal
from corsdice.report.run import run_report
from corsdice.training import assess, directory
from corsdice.training.run import plan_of, split, units_for

METHODS = ("bc-all", "bc-safe", "naive-semidice", "coptidice", "corsdice")
CLONING = ("bc-all", "bc-safe")
UNIT = "undiscounted sum over an episode"


def run(config: DemoConfig) -> None:
    started = time.perf_counter()
    out = output_directory(config.out)
    task = envs.task_by_name(config.task)
    logs = out / f"{config.task}.hdf5"
    dataset = envs.collect(task, config.data_seed, config.episodes)
    data.write(dataset, logs)
    print(f"Wrote {dataset.transitions:,} transitions of {config.episodes:,} scripted drivers to {logs}")
    plans = {
        method: plan_of(
            method,
            dataset,
            [config.limit],
            seeds=config.seeds,
            options={
                "steps": config.clone_steps if method in CLONING else config.steps,
                "widths": config.widths,
                "batch_size": config.batch_size,
            },
        )
        for method in METHODS
    }
    first = plans["corsdice"]
    print(f"cost limit: {first.members[0].limit}")
    train, held_out = split(dataset, first.holdout)
    evidence = evidence_of(held_out, units_for(train, first), first.horizon, first.discount)
    assessor = assess.Assessor(evidence)
    rows: list[dict[str, Any]] = []
    with terminal.progress(len(METHODS), "methods") as advance:
        for method, plan in plans.items():
            where = out / method
            directory.train(where, plan, dataset, str(logs))
            rows += results(where, plan.algorithm, assess.assess(where, held_out, assessor), config)
            advance(method)
    html.write(run_report(out / "corsdice"), out / "corsdice" / directory.REPORT)
    show(rows, config)
    write_json(out / "summary.json", rows)
    write_json(out / "provenance.json", provenance(config, time.perf_counter() - started))
    terminal.print_written(out, ("summary.json", f"corsdice/{directory.REPORT}"))


def results(where: Path, method: str, estimates: list[dict[str, Any]], config: DemoConfig) -> list[dict[str, Any]]:
    """What each policy of a run believes it costs, and what it really does."""
    believed = {row["member"]: row.get("estimated_cost") for row in directory.read_metrics(where)}
    rows, truths = [], []
    for index, (policy, found) in enumerate(zip(directory.load_policies(where), estimates, strict=True)):
        truth = simulate(policy, config.task, config.truth_episodes, seed=1)
        truths.append({"member": found["member"], "env": config.task} | truth)
        # A constrained baseline is shown with the estimate that it steers by, the others with extraction's.
        own = believed[index] if method in ("naive-semidice", "coptidice") else None
        rows.append(
            {
                "method": method,
                "seed": policy.about["seed"],
                "cost_limit": config.limit,
                "return": truth["return"],
                "cost": truth["cost"],
                "cost_se": truth["cost_se"],
                "estimated_return": found["return"]["value"],
                "estimated_cost": found["cost"]["value"] if own is None else own,
                "estimator": "extraction" if own is None else "its own",
                "extraction_cost": found["cost"]["value"],
                "estimate_unit": UNIT,
                "verdict": found["verdict"],
            }
        )
    write_json(where / directory.EVALUATION, {"results": truths})
    return rows


def show(rows: list[dict[str, Any]], config: DemoConfig) -> None:
    terminal.print_table(
        f"{config.task}: sums over an episode; truth from {config.truth_episodes:,} episodes",
        ("method", "seed", "return", "cost", "limit", "est. cost", "est. return", "safe"),
        [
            (
                row["method"],
                str(row["seed"]),
                f"{row['return']:.1f}",
                f"{row['cost']:.1f}",
                f"{row['cost_limit']:g}",
                f"{row['estimated_cost']:.1f}",
                f"{row['estimated_return']:.1f}",
                "yes" if row["cost"] <= row["cost_limit"] else "NO",
            )
            for row in rows
        ],
    )
    print("est. cost: what the method itself believes (naive-semidice, coptidice), else extraction on held-out logs")
