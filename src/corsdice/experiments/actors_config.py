"""The settings of `corsdice reproduce actors`. Light on purpose: nothing here imports JAX."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from corsdice.experiments.bench_dsrl_config import EMBEDDED, ProtocolConfig
from corsdice.experiments.checks import at_least, distinct

ActorName = Literal["gaussian", "mixture", "mode", "improved", "resampled", "guided", "guided-by-energy", "selected"]


@dataclass(frozen=True)
class ActorsConfig(ProtocolConfig):
    """Estimated against true cost of CORSDICE with up to eight ways to act: is what was estimated what ships?

    One Gaussian through tanh, a mixture, its mode, an actor improved by Q, and a model of the logged actions: resampled
    by w, guided by it, by the paper's energy, or guided with the best candidate selected. Run it again with the same
    options to go on from where it was stopped.
    """

    out: Path = Path("out/actors")
    """Where the logs, the runs, results.csv and summary.json go. What is done is not done again."""
    tasks: tuple[str, ...] = EMBEDDED
    """Embedded ones, or DSRL's by any of their names."""
    actors: tuple[ActorName, ...] = ("gaussian", "mixture", "improved", "resampled", "guided")
    tight: bool = True
    """A task's one tight limit, 10 or 5."""
    alphas: tuple[float, ...] = (0.3,)
    seeds: int = 3
    steps: int = 8000
    """Updates of each member."""
    widths: tuple[int, ...] = (64, 64)
    batch_size: int = 128
    episodes: int = 200
    """Simulated episodes of each policy."""
    score_width: int = 64
    score_steps: int = 4000
    """Updates of the model of the logged actions."""
    candidates: int = 16
    """Actions to choose from, where some are chosen."""

    def __post_init__(self) -> None:
        super().__post_init__()
        distinct(actors=self.actors)
        at_least(1, score_width=self.score_width, score_steps=self.score_steps, candidates=self.candidates)
