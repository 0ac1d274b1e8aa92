"""The settings of `corsdice reproduce selection`. Light on purpose: nothing here imports JAX."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from corsdice.errors import UserError
from corsdice.experiments.checks import at_least, positive
from corsdice.experiments.configs import EmbeddedTask


@dataclass(frozen=True)
class SelectionConfig:
    """How good the choice of a policy by logs alone is beside the simulator's, over fresh logs each time.

    Run it again with the same options, or more repetitions, to go on from where it was stopped.
    """

    out: Path = Path("out/selection")
    """Where the runs, results.csv, summary.json and provenance.json go. What is done is not done again."""
    tasks: tuple[EmbeddedTask, ...] = ("point-circle", "point-run", "point-ridge")
    repetitions: int = 20
    """Of each task, each with logs of its own."""
    limit: float = 20.0
    """Undiscounted cost an episode may have."""
    alphas: tuple[float, ...] = (0.3,)
    seeds: int = 3
    """Of each α; all members are on one frontier."""
    candidates: int = 40
    """Most policies of the frontier, evenly along it, that the simulator chooses from beside the choice by logs."""
    episodes: int = 1000
    """Logged episodes: half to train on, a quarter to choose by, and a quarter to judge the choice."""
    steps: int = 8000
    widths: tuple[int, ...] = (64, 64)
    batch_size: int = 128
    truth_episodes: int = 200
    """Simulated episodes of each policy."""

    def __post_init__(self) -> None:
        at_least(1, repetitions=self.repetitions, seeds=self.seeds, candidates=self.candidates, steps=self.steps)
        at_least(1, batch_size=self.batch_size)
        at_least(2, episodes=self.episodes, truth_episodes=self.truth_episodes)
        positive(limit=(self.limit,), alphas=self.alphas, widths=tuple(map(float, self.widths)))
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise UserError("--tasks must name at least one task, and none twice")

    def asked(self) -> dict[str, object]:
        """All that a repetition depends on beside its task and number, in JSON's types."""
        return {
            "limit": self.limit,
            "alphas": list(self.alphas),
            "seeds": self.seeds,
            "candidates": self.candidates,
            "episodes": self.episodes,
            "steps": self.steps,
            "widths": list(self.widths),
            "batch_size": self.batch_size,
            "truth_episodes": self.truth_episodes,
        }
