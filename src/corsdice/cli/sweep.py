"""`corsdice sweep`: the hyper-parameters whose policy does best, by its estimate from logs alone."""

from __future__ import annotations

import json
from typing import Any

from corsdice import files
from corsdice.cli.ope import read
from corsdice.cli.sweep_config import SweepConfig
from corsdice.report import terminal
from corsdice.training.directory import Stopped
from corsdice.training.journal import FILE
from corsdice.training.sweep import BEST, NUMBERS, SUMMARY, TRIALS, Record, sweep, write_results

OPTIONS = ("steps", "widths", "batch_size")
PASSED_ON = ("algorithm", "space", "trials", "batch", "seed", "prune", "horizon", "holdout", "chunk")


def run(config: SweepConfig) -> None:
    dataset = read(config.data, config.columns)
    asked = {name: getattr(config, name) for name in PASSED_ON}
    options = {name: value for name in OPTIONS if (value := getattr(config, name)) is not None}
    try:
        with terminal.progress(None, "updates") as advance:
            ranked = sweep(
                config.out, dataset, config.data, config.cost_limit, **asked, options=options, progress=advance
            )
        about = {"data": config.data, "cost_limit": config.cost_limit, **asked, **options}
        versions = files.versions("corsdice", "jax", "numpy", "optuna")
        summary = write_results(config.out, ranked, about | {"versions": versions})
    except KeyboardInterrupt:
        if not (config.out / FILE).exists():
            raise
        told = f"stopped; what was learned is in {config.out}: run the same command again to go on"
        raise Stopped(told) from None
    if config.json:
        print(json.dumps(summary, indent=2))
        return
    _show(ranked, config.cost_limit)
    terminal.print_written(config.out, (TRIALS, SUMMARY, f"{BEST}.safetensors", f"{BEST}.json"))


def _show(ranked: list[Record], limit: float) -> None:
    drawn = [
        name for name in ranked[0] if name not in ("trial", "state", "verdict", *NUMBERS, "run", "member", "words")
    ]
    terminal.print_table(
        f"Estimated from logs alone, best first: sums over an episode, cost limit {limit:g}",
        ("trial", *drawn, "return", "cost", "95 % interval", "limit", "ended"),
        [
            (
                str(found["trial"]),
                *(_text(found[name]) for name in drawn),
                _text(found["return"]),
                _text(found["cost"]),
                "-" if found["cost"] is None else f"{found['cost_low']:.1f} to {found['cost_high']:.1f}",
                found["verdict"] or "-",
                {"complete": "", "pruned": "pruned", "fail": "failed"}[found["state"]],
            )
            for found in ranked
        ],
    )
    for found in ranked:
        if found["state"] != "complete":
            print(f"trial {found['trial']} {found['words']}")


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
