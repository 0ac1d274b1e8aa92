"""Estimated against true cost of an episode, over many policies that CORSDICE ships: is the interval to be believed?

Every limit chooses a policy from the frontier of every α and seed. Half of the logs are kept from the training: a half
of those to choose by, the other for the estimates.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from corsdice import data, envs
from corsdice.data.split import split
from corsdice.envs.simulate import simulate
from corsdice.experiments.configs import CalibrationConfig
from corsdice.experiments.families import traced_once
from corsdice.files import output_directory, provenance, write_csv, write_json
from corsdice.ope.estimate import QUANTITIES
from corsdice.report import figures, terminal
from corsdice.training import directory
from corsdice.training.assess import Assessor, assessor_of
from corsdice.training.run import plan_of
from corsdice.training.ship import Shipped, by_member, models_of, shipped

CHOICE = ("alpha", "seed", "cost_limit", "way", "multiplier", "imitation")
COLUMNS = ("task", *CHOICE, "quantity", "estimate", "low", "high", "truth", "truth_se", "verdict")
HOLDOUT = 0.5


def run(config: CalibrationConfig) -> None:
    started = time.perf_counter()
    out = output_directory(config.out)
    task = envs.task_by_name(config.task)
    logs = out / f"{config.task}.hdf5"
    dataset = envs.collect(task, config.data_seed, config.episodes)
    data.write(dataset, logs)
    plan = plan_of(
        "corsdice",
        dataset,
        [],
        alphas=list(config.alphas),
        seeds=config.seeds,
        holdout=HOLDOUT,
        options={"steps": config.steps, "widths": config.widths, "batch_size": config.batch_size},
    )
    outcome = directory.train(out / "run", plan, dataset, str(logs))
    parts = split(dataset, HOLDOUT)
    models = models_of(outcome, parts)
    assessor = assessor_of(outcome, parts.judge, models)
    family = traced_once(out / "run", outcome, parts, models)
    policies = shipped(outcome, config.limits, family, by_member(plan))
    rows: list[dict[str, Any]] = []
    cells = output_directory(out / "cells" / f"{config.truth_episodes}-episodes")
    with terminal.progress(len(policies), "policies") as advance:
        for each in policies:
            cell = cells / f"{each.name}.json"
            if not cell.exists():
                write_json(cell, records(config, each, assessor))
            rows += json.loads(cell.read_text())
            advance(each.name)
    summary = summarise(rows)
    show(summary)
    draw(rows, out / "calibration.png")
    write_csv(out / "results.csv", COLUMNS, ([row[name] for name in COLUMNS] for row in rows))
    write_json(out / "summary.json", summary)
    write_json(out / "provenance.json", provenance(config, time.perf_counter() - started))
    terminal.print_written(out, ("results.csv", "summary.json", "calibration.png"))


def records(config: CalibrationConfig, each: Shipped, assessor: Assessor) -> list[dict[str, Any]]:
    """Of a policy's return and cost."""
    found = assessor.record(each.policy, each.limit)
    truth = simulate(each.policy, config.task, config.truth_episodes, 1)
    return [
        {
            "task": config.task,
            **{name: each.policy.about[name] for name in CHOICE},
            "quantity": quantity,
            "estimate": found[quantity]["value"],
            "low": found[quantity]["low"],
            "high": found[quantity]["high"],
            "truth": truth[quantity],
            "truth_se": truth[f"{quantity}_se"],
            "verdict": found["verdict"],
            "estimator": "models",
        }
        for quantity in QUANTITIES
    ]


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Errors and coverage of both quantities, and what the verdicts were worth."""
    summary: dict[str, Any] = {}
    for quantity in QUANTITIES:
        chosen = [row for row in rows if row["quantity"] == quantity]
        errors = np.array([row["estimate"] - row["truth"] for row in chosen])
        covered = [row["low"] <= row["truth"] <= row["high"] for row in chosen]
        half = [(row["high"] - row["low"]) / 2 for row in chosen]
        summary[quantity] = {
            "policies": len(chosen),
            "rmse": float(np.sqrt((errors**2).mean())),
            "bias": float(errors.mean()),
            "coverage": float(np.mean(covered)),
            "mean_half_width": float(np.mean(half)),
        }
    costs = [row for row in rows if row["quantity"] == "cost"]
    shares = [abs(row["estimate"] - row["truth"]) / row["cost_limit"] for row in costs]
    summary["cost"]["median_error_over_limit"] = float(np.median(shares))
    summary["verdicts"] = {
        verdict: {
            "policies": sum(row["verdict"] == verdict for row in costs),
            "over_the_limit": sum(row["verdict"] == verdict and row["truth"] > row["cost_limit"] for row in costs),
        }
        for verdict in ("meets", "does not meet", "cannot be told")
    }
    return summary


def show(summary: dict[str, Any]) -> None:
    terminal.print_table(
        "Sums over an episode, estimated from logs that had no part in training or choice, against simulation",
        ("quantity", "policies", "RMSE", "bias", "95 % intervals that hold the truth", "their mean half width"),
        [
            (
                quantity,
                str(summary[quantity]["policies"]),
                f"{summary[quantity]['rmse']:.2f}",
                f"{summary[quantity]['bias']:.2f}",
                f"{summary[quantity]['coverage']:.0%}",
                f"{summary[quantity]['mean_half_width']:.2f}",
            )
            for quantity in QUANTITIES
        ],
    )
    for verdict, count in summary["verdicts"].items():
        print(f"verdict {verdict}: {count['policies']} policies, {count['over_the_limit']} of them over their limit")


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    with figures.figure(1, 2, width=8, height=4) as (fig, axes):
        for axis, quantity in zip(axes[0], QUANTITIES, strict=True):
            figures.calibration(axis, [row for row in rows if row["quantity"] == quantity])
            axis.set_title(f"{rows[0]['task']}: {quantity} of an episode")
        fig.savefig(path)
