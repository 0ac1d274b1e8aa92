"""Someone who makes logs in a simulator for a while: what it is asked, and what it leaves on disk.

DIRECTORY/0000.hdf5 …   whole episodes, a chunk at a time
DIRECTORY/progress.json how far it has come; written last, so that what it speaks of is there

A killed one goes on from its latest chunk.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from corsdice import data, files
from corsdice.data.dataset import Dataset
from corsdice.errors import UserError

CHUNK = 30.0
"""Seconds of work between two savings."""


@dataclass(frozen=True)
class Errand:
    kind: Literal["agent", "drivers"]
    """An online agent that learns, or scripted drivers of MetaDrive."""
    env: str
    limit: float
    """Undiscounted cost of an episode that an agent aims at."""
    seed: int
    directory: str
    seconds: float = math.inf
    """To work for, over all its runs together."""
    steps: float = math.inf
    """Of the simulator, after which it is over whatever the time: a number makes the logs repeatable."""

    def over(self, progress: Progress) -> bool:
        return progress.seconds >= self.seconds or progress.steps >= self.steps


@dataclass(frozen=True)
class Progress:
    seconds: float = 0.0
    chunks: int = 0
    episodes: int = 0
    steps: int = 0
    latest_return: float = float("nan")
    latest_cost: float = float("nan")
    integral: float = 0.0
    """With `price`, where an agent's multiplier stands."""
    price: float = 0.0
    iteration: int = 0


def progress_of(errand: Errand) -> Progress:
    path = Path(errand.directory) / "progress.json"
    try:
        return Progress(**json.loads(path.read_text())) if path.exists() else Progress()
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is damaged: remove {errand.directory} to begin anew") from error


def save(errand: Errand, progress: Progress, episodes: Dataset | None) -> None:
    directory = Path(errand.directory)
    if episodes is not None:
        data.write(episodes, directory / f"{progress.chunks - 1:04}.hdf5")
    files.write_json(directory / "progress.json", asdict(progress))


def episodes_of(errand: Errand) -> list[Dataset]:
    """What it has done so far, in its order."""
    paths = (Path(errand.directory) / f"{chunk:04}.hdf5" for chunk in range(progress_of(errand).chunks))
    return [data.read(path) for path in paths if path.exists()]
