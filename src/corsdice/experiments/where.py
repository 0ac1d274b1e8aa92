"""Where an experiment is computed, as the command line shows it; `executors` does it. Nothing here imports JAX."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from corsdice.errors import UserError
from corsdice.experiments.checks import at_least


@dataclass(frozen=True)
class Where:
    """The numbers do not depend on it."""

    executor: Literal["here", "processes", "ray"] = "here"
    """In this process, in several beside it, or on a Ray cluster whose machines share --out."""
    processes: int = min(2, os.cpu_count() or 1)
    """Of --executor processes."""
    address: str | None = None
    """Of a Ray cluster that is running, as `ray start` tells it; unless said, one is started on this machine."""

    def __post_init__(self) -> None:
        at_least(1, processes=self.processes)
        if self.address is not None and self.executor != "ray":
            raise UserError("--address is a Ray cluster's: add --executor ray")
