"""How long the paper's Table 2 would take: each method's updates timed on one core, and its cells dealt to machines.

Each method is timed in a process of its own that has one core, as a cell has in a cluster.
"""

from __future__ import annotations

import heapq
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from corsdice.experiments.bench_configs import BenchScaleConfig
from corsdice.files import output_directory, provenance, write_csv, write_json
from corsdice.report import terminal

METHODS = ("corsdice", "coptidice", "bc-all", "bc-safe", "bcq-lag", "bear-lag", "cpq")
"""Of Table 2; CORSDICE is the family, trained once for all limits of a task."""
BATCH = 256
"""Rows of an update in the paper, of every method."""
COLUMNS = ("algorithm", "updates_per_second", "start_seconds", "is_family", "core_hours")
LIMIT = 200.0


class Speed(NamedTuple):
    """Of one method on one core."""

    algorithm: str
    updates_per_second: float
    start_seconds: float
    """Until the first update is done: compiling, and what is fitted before."""
    is_family: bool = False
    """Whether one training serves every limit."""


def run(config: BenchScaleConfig) -> None:
    started = time.perf_counter()
    speeds = []
    with terminal.progress(len(METHODS), "methods") as advance:
        for algorithm in METHODS:
            command = [sys.executable, "-m", __name__, algorithm, str(config.updates)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            speeds.append(Speed(**json.loads(done.stdout)))
            advance(algorithm)
    hours = {speed.algorithm: sum(cell_seconds(config, speed, config.members)) / 3600 for speed in speeds}
    spans = [
        {"machines": machines}
        | {f"cells_of_{members}": makespan(config, speeds, machines, members) / 3600 for members in config.cell_members}
        for machines in config.machines
    ]
    show(config, speeds, hours, spans)
    out = output_directory(config.out)
    write_csv(out / "results.csv", COLUMNS, ((*speed, hours[speed.algorithm]) for speed in speeds))
    write_json(out / "summary.json", {"core_hours": sum(hours.values()), "hours": spans})
    write_json(out / "provenance.json", provenance(config, time.perf_counter() - started))
    terminal.print_written(out, ("results.csv", "summary.json"))


def cell_seconds(config: BenchScaleConfig, speed: Speed, members: int) -> list[float]:
    """Of every cell of a method, on one core."""
    whole, rest = divmod(config.members, members)
    sizes = [members] * whole + ([rest] if rest else [])
    each = config.steps / speed.updates_per_second
    if speed.is_family:
        each += config.frontier_seconds + config.limits * config.policy_seconds
    else:
        each += config.policy_seconds
    trainings = config.tasks * (1 if speed.is_family else config.limits)
    return [speed.start_seconds + size * each for size in sizes] * trainings


def makespan(config: BenchScaleConfig, speeds: Iterable[Speed], machines: int, members: int) -> float:
    """Seconds until the last cell is done, the longest dealt first, each to the core that is free first."""
    cells = sorted((seconds for speed in speeds for seconds in cell_seconds(config, speed, members)), reverse=True)
    cores = [0.0] * (machines * config.cores)
    for seconds in cells:
        heapq.heapreplace(cores, cores[0] + seconds)
    return max(cores)


def show(config: BenchScaleConfig, speeds: list[Speed], hours: dict[str, float], spans: list[dict[str, Any]]) -> None:
    terminal.print_table(
        f"{config.tasks} tasks x {config.limits} limits x {config.members} members x {config.steps:,} updates",
        ("method", "updates/s of a core", "start (s)", "core-hours"),
        [
            (speed.algorithm, f"{speed.updates_per_second:.0f}", f"{speed.start_seconds:.0f}", f"{count:,.0f}")
            for speed, count in zip(speeds, hours.values(), strict=True)
        ]
        + [("all", "", "", f"{sum(hours.values()):,.0f}")],
    )
    if families := [speed.algorithm for speed in speeds if speed.is_family]:
        print(f"{', '.join(families)}: trained once for all limits of a task")
    terminal.print_table(
        f"Hours on machines of {config.cores} cores",
        ("machines", *(f"cells of {members}" for members in config.cell_members)),
        [
            (f"{span['machines']:,}", *(f"{span[f'cells_of_{members}']:,.1f}" for members in config.cell_members))
            for span in spans
        ],
    )


def measure(algorithm: str, updates: int) -> dict[str, Any]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before JAX counts them

    from corsdice.algorithms import by_name
    from corsdice.experiments.bench_training import some_logs
    from corsdice.training.run import Trainer, plan_of

    dataset = some_logs()
    started = time.perf_counter()
    is_family = by_name(algorithm).is_family
    preset = "default" if is_family else "paper"  # the paper's CORSDICE is trained for one limit
    options = {"batch_size": BATCH, "steps": 10 * updates}
    plan = plan_of(algorithm, dataset, [LIMIT], alphas=[0.3], chunk=updates, preset=preset, options=options)
    trainer = Trainer(plan, dataset)
    trainer.advance()
    first = time.perf_counter() - started
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        trainer.advance()
        seconds.append(time.perf_counter() - started)
    usual = statistics.median(seconds)
    return Speed(algorithm, updates / usual, first - usual, is_family)._asdict()


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
