"""`corsdice data filter`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from corsdice import data
from corsdice.cli.data import refuse_existing, write
from corsdice.data import Columns, Dataset, filters
from corsdice.data.dsrl import dsrl_task
from corsdice.data.provenance import with_steps
from corsdice.errors import UserError
from corsdice.report import terminal


@dataclass(frozen=True)
class DataFilterConfig:
    """Keep some of the episodes, or spoil some as DSRL does. In this order: --thin, --density, --outliers, --safe."""

    source: Annotated[str, tyro.conf.Positional]
    """A .hdf5, .h5, .npz, .parquet or .csv file, minari:dataset-id or dsrl:task."""
    target: Annotated[Path, tyro.conf.Positional]
    """A .hdf5, .h5, .npz, .parquet or .csv file."""
    thin: int | None = None
    """Keep at most so many episodes, spread evenly over cost and return."""
    max_cost: float | None = None
    """With --thin: none whose undiscounted cost is above this."""
    density: bool = False
    """Keep at most 5 episodes in each of 10 x 50 cells of cost and return, and none where there are 2 or fewer."""
    outliers: float | None = None
    """Make this share of the episodes, costly ones, seem cheap and good; needs --cost-limit."""
    cost_limit: float | None = None
    """With --outliers: what they seem to cost less than."""
    task: str | None = None
    """With --outliers: the DSRL task by whose largest cost and return to judge; by the dataset's own unless said."""
    safe: float | None = None
    """Keep the episodes whose undiscounted cost is at most this."""
    seed: int = 0
    overwrite: bool = False
    """Replace the target if it exists."""
    columns: Annotated[Columns, tyro.conf.arg(name="")] = field(default_factory=Columns)

    def __post_init__(self) -> None:
        for name in ("max_cost", "safe", "seed"):
            if (value := getattr(self, name)) is not None and not 0 <= value < math.inf:
                raise UserError(f"--{name.replace('_', '-')} must be a number of at least 0, got {value}")
        if self.max_cost is not None and self.thin is None:
            raise UserError("--max-cost goes with --thin: --safe alone keeps the episodes up to a cost")
        if (self.outliers is None) != (self.cost_limit is None):
            raise UserError("--outliers and --cost-limit go together: give both or neither")
        if self.task is not None and self.outliers is None:
            raise UserError("--task goes with --outliers: no other filter needs a task's ranges")
        if self.thin is None and not self.density and self.outliers is None and self.safe is None:
            raise UserError("--thin, --density, --outliers or --safe: choose at least one")


def run(config: DataFilterConfig) -> None:
    refuse_existing(config.target, config.overwrite)
    steps = list(_steps(config))
    dataset = data.check(data.read(config.source, config.columns))
    about = data.provenance(config.source) or {"source": _name(config.source)}
    rows, done = [_row("source", dataset)], []
    for step, settings in steps:
        dataset = step(dataset, **settings)
        rows.append(_row(step.__name__, dataset))
        done.append({"filter": step.__name__, **settings, "remained": len(dataset.episodes.starts)})
    terminal.print_table("What remained", ("", "episodes", "transitions", "cost", "return"), rows)
    write(dataset, config.target, with_steps(about, done))


def _steps(config: DataFilterConfig) -> Iterator[tuple[Callable[..., Dataset], dict[str, Any]]]:
    """The filters, in their order, and what each is told."""
    seed = {"seed": config.seed}
    if config.thin is not None:
        most = {} if config.max_cost is None else {"max_cost": config.max_cost}
        yield filters.thin, {"episodes": config.thin} | most | seed
    if config.density:
        yield filters.density, seed
    if config.outliers is not None:
        task = dsrl_task(config.task) if config.task is not None else None
        ranges = {"max_cost": task.max_cost, "max_return": task.max_return} if task else {}
        yield filters.outliers, {"share": config.outliers, "limit": config.cost_limit} | ranges | seed
    if config.safe is not None:
        yield filters.safe, {"limit": config.safe}


def _name(source: str) -> str:
    """Without the directories of this machine."""
    return Path(source).name if Path(source).exists() else source


def _row(name: str, dataset: Dataset) -> tuple[str, ...]:
    episodes = dataset.episodes
    sums = [episodes.sums(column) for column in (dataset.costs, dataset.rewards)]
    ranges = (f"{each.min():.5g} to {each.max():.5g}" for each in sums)
    return (name, f"{len(episodes.starts):,}", f"{dataset.transitions:,}", *ranges)
