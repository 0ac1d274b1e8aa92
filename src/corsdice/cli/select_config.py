"""What `corsdice select` can be told; `select` carries it out."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from corsdice.costs import LimitOn
from corsdice.data import Columns
from corsdice.experiments.checks import at_least

NOTHING_SAFE = 3
"""The exit code where, for some limit, no policy is known to meet it."""


@dataclass(frozen=True)
class SelectConfig:
    """Choose a policy for a cost limit among trained runs by the estimates from logs alone: safe first, then return.

    A run of CORSDICE has a frontier, from which a limit chooses at once. Of runs that were trained for a limit, α, seed
    and checkpoint are chosen; run it again to go on from where it was stopped. Exits with 3 where no policy is known to
    meet a limit.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Directories of runs on the same logs; `corsdice train --keep N` keeps N checkpoints of each policy to choose
    from."""
    data: str | None = None
    """The logs that the runs were trained on: the episodes that they held out are the evidence. A frontier needs
    none."""
    fresh: bool = False
    """No run was trained on any of these logs, so all of them are evidence."""
    cost_limit: float | None = None
    """What an episode may cost, undiscounted; of runs that were trained for limits one of these, each unless said."""
    limit_on: LimitOn = "mean"
    """What the limit is put on: the mean cost of an episode, the cost that nine in ten episodes stay within (quantile),
    or the mean of the dearest tenth (cvar)."""
    out: Path | None = None
    """Where the chosen policy goes: OUT.safetensors and OUT.json."""
    env: str | None = None
    """A simulator, to tell what the choice was worth: an embedded task or a Gymnasium id. It takes no part in it."""
    episodes: int = 200
    """Simulated episodes of each policy."""
    seed: int = 0
    """Of the simulations."""
    workers: int = min(2, os.cpu_count() or 1)
    """Processes that Gymnasium environments are spread over; the results do not depend on it."""
    json: bool = False
    """Print all candidates and the choices as JSON."""
    columns: Annotated[Columns, tyro.conf.arg(name="")] = field(default_factory=Columns)

    def __post_init__(self) -> None:
        at_least(2, episodes=self.episodes)
        at_least(1, workers=self.workers)
        at_least(0, seed=self.seed)
