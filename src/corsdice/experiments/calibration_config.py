"""The settings of `corsdice reproduce calibration`. Light on purpose: nothing here imports JAX."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from corsdice.experiments.bench_dsrl_config import EMBEDDED, task_name
from corsdice.experiments.checks import at_least, distinct, positive, task_files


@dataclass(frozen=True)
class CalibrationConfig:
    """Estimated against true cost over many policies and kinds of logs: do the intervals hold, are the verdicts right?

    Run it again with the same options to go on from where it was stopped.
    """

    out: Path = Path("out/calibration")
    """Where the logs, the runs, results.csv, summary.json and calibration.png go. What is done is not done again."""
    tasks: tuple[str, ...] = EMBEDDED
    """Embedded tasks, and any of DSRL's."""
    data: tuple[str, ...] = ()
    """Logs to use instead of those made here or DSRL's own, as task=file."""
    shares: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.8)
    """Cost limits, as shares of what a logged episode costs in the mean. Each chooses a policy of every α and seed."""
    others: int = 10
    """Further policies of every α and seed, evenly along the frontier."""
    alphas: tuple[float, ...] = (0.03, 0.3)
    seeds: int = 1
    logged_episodes: int = 1000
    """Of an embedded task, whose logs are made here."""
    steps: int = 10_000
    widths: tuple[int, ...] = (128, 128)
    batch_size: int = 128
    truth_episodes: int = 1000
    """Simulated episodes of each policy."""
    workers: int = min(2, os.cpu_count() or 1)
    """Processes that simulate; the results do not depend on it."""

    def __post_init__(self) -> None:
        at_least(1, seeds=self.seeds, steps=self.steps, batch_size=self.batch_size, workers=self.workers)
        at_least(0, others=self.others)
        at_least(2, logged_episodes=self.logged_episodes, truth_episodes=self.truth_episodes)
        positive(shares=self.shares, alphas=self.alphas, widths=tuple(map(float, self.widths)))
        distinct(tasks=self.names())
        self.files()

    def names(self) -> tuple[str, ...]:
        """The tasks, each by its short name."""
        return tuple(map(task_name, self.tasks))

    def files(self) -> dict[str, Path]:
        """The file that --data names for a task."""
        return task_files(self.data, self.names(), task_name)

    def trained(self) -> dict[str, object]:
        """All that the policies of a task depend on beside its logs, in JSON's types."""
        return {
            "alphas": list(self.alphas),
            "seeds": self.seeds,
            "steps": self.steps,
            "widths": list(self.widths),
            "batch_size": self.batch_size,
        }

    def asked(self) -> dict[str, object]:
        """All that the records of a task depend on beside its logs."""
        chosen = {"shares": list(self.shares), "others": self.others, "truth_episodes": self.truth_episodes}
        return self.trained() | chosen
