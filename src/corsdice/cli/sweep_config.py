"""What `corsdice sweep` can be told. Light on purpose: nothing here imports JAX or Optuna."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from corsdice.data import Columns
from corsdice.experiments.checks import at_least
from corsdice.experiments.configs import AlgorithmName


@dataclass(frozen=True)
class SweepConfig:
    """Search for the hyper-parameters whose policy does best by its estimate from logs alone.

    Run it again with the same options to go on from where it was stopped.
    """

    data: Annotated[str, tyro.conf.Positional]
    """A .hdf5, .h5, .npz, .parquet or .csv file, minari:dataset-id or dsrl:task."""
    out: Path
    """Directory of the search."""
    cost_limit: float
    """What an episode may cost, undiscounted."""
    algorithm: AlgorithmName = "corsdice"
    space: tuple[str, ...] = ()
    """Where to draw from: name=log:LOW:HIGH, name=uniform:LOW:HIGH or name=choice:A,B,…; alpha=log:1e-3:100 unless
    said."""
    trials: int = 20
    batch: int = 5
    """Trials that are trained as one population; those that differ in what is compiled in are not."""
    seed: int = 0
    """Of the draws; trial number n trains with seed + n."""
    prune: bool = False
    """After a quarter and after half of the updates, stop the half of a population that is worse by its estimate; of
    algorithms that are trained for a limit."""
    horizon: int | None = None
    """Steps an episode may last; needed where the data do not tell."""
    steps: int | None = None
    """Updates of each policy; 20,000 unless said."""
    widths: tuple[int, ...] | None = None
    """Hidden layers of every network; 256 256 unless said."""
    batch_size: int | None = None
    holdout: float = 0.2
    """Share of the episodes kept from training, for the estimates."""
    chunk: int = 1000
    """Updates between two checkpoints."""
    json: bool = False
    """Print the summary as JSON."""
    columns: Annotated[Columns, tyro.conf.arg(name="")] = field(default_factory=Columns)

    def __post_init__(self) -> None:
        at_least(1, trials=self.trials, batch=self.batch)
        at_least(0, seed=self.seed)
