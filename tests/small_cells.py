"""A driver for the tests of executors: `python small_cells.py OUT EXECUTOR` trains two clones and writes them down."""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from corsdice import envs
from corsdice.experiments.executors import execute
from corsdice.experiments.where import Where
from corsdice.files import write_json
from corsdice.training import directory
from corsdice.training.run import plan_of

STEPS, CHUNK = 6_000, 200


class Cell(NamedTuple):
    out: Path
    algorithm: str

    @property
    def logs(self) -> str:
        return "point-run"


def load(cell):
    return envs.collect(envs.TASKS["point-run"], 0, 20)


def work(cell, logs):
    options = {"steps": STEPS, "widths": (8,), "batch_size": 16}
    plan = plan_of(cell.algorithm, logs, [60.0], horizon=100, chunk=CHUNK, options=options)
    outcome = directory.train(cell.out / cell.algorithm, plan, logs, "memory")
    action = outcome.policy(0).seed(0).predict(np.zeros(3))
    steps = [row["step"] for row in directory.read_metrics(cell.out / cell.algorithm)]
    write_json(cell.out / f"{cell.algorithm}.json", {"action": action.tolist(), "steps": steps})


if __name__ == "__main__":
    out, executor = Path(sys.argv[1]), sys.argv[2]
    cells = [Cell(out, name) for name in ("bc-all", "bc-safe")]
    print(json.dumps([cell.algorithm for cell in execute(Where(executor, 1), cells, load, work)]))
