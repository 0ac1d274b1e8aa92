"""`corsdice data collect` and `snapshots`: logs made here by online agents."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from corsdice import data
from corsdice.cli.data import refuse_existing, write
from corsdice.data.dsrl import find_dsrl_task
from corsdice.data.filters import thin
from corsdice.data.formats import WRITERS
from corsdice.data.provenance import made_here
from corsdice.errors import UserError
from corsdice.report import terminal

if TYPE_CHECKING:
    from corsdice.envs.errands import Progress

EPISODES = 1000
"""That are kept where DSRL does not say how many."""


@dataclass(frozen=True)
class DataCollectConfig:
    """Make logs of a task like those of DSRL: online agents, from safe to reckless, and all their episodes, thinned.

    Run it again with the same --out to go on from where it was stopped, or with more --minutes for more.
    """

    task: Annotated[str, tyro.conf.Positional]
    """A task of DSRL by any of its names, a Gymnasium id, or module:factory; the cost in info["cost"]."""
    out: Path
    """A .hdf5, .h5, .npz, .parquet or .csv file; what the agents do is kept in OUT.parts."""
    minutes: float = 10.0
    """For all agents together, of the clock on the wall."""
    steps: int | None = None
    """Of the simulator, for each agent, instead of --minutes: then the logs can be repeated to the last digit."""
    limits: tuple[float, ...] = ()
    """Undiscounted cost an episode for each agent to aim at; for a task of DSRL, parts of the largest in its data."""
    episodes: int | None = None
    """To keep, evenly over return and cost; for a task of DSRL as many as its file has."""
    workers: int = min(2, os.cpu_count() or 1)
    """Agents that work at a time, each in a process of its own."""
    seed: int = 0
    overwrite: bool = False
    """Replace the file if it exists."""

    def __post_init__(self) -> None:
        _at_least(self, minutes=0.01, workers=1, seed=0)
        _at_least(self, **{name: 1 for name in ("episodes", "steps") if getattr(self, name) is not None})
        if not all(0 <= limit < math.inf for limit in self.limits):
            raise UserError(f"--limits must be numbers of at least 0, got {self.limits}")
        _check_target(self.out)


@dataclass(frozen=True)
class DataSnapshotsConfig:
    """Train one online agent in MuJoCo and log snapshots of it, from untrained to trained (extra `mujoco`)."""

    task: Annotated[str, tyro.conf.Positional]
    """hopper, walker2d or halfcheetah; a step costs 1 above a speed limit."""
    out: Path
    """A .hdf5, .h5, .npz, .parquet or .csv file."""
    steps: int = 1_000_000
    """Of the simulator, to train for."""
    transitions: int = 200_000
    """To log, about: whole episodes, the same share from each snapshot."""
    snapshots: int = 12
    """Evenly spaced over the training, from untrained to final; 1 is the final one alone."""
    penalty: float = 0.0
    """The agent learns from reward - penalty cost; the logs hold both apart."""
    seed: int = 0
    overwrite: bool = False
    """Replace the file if it exists."""

    def __post_init__(self) -> None:
        _at_least(self, steps=1, transitions=1, snapshots=1, penalty=0, seed=0)
        _check_target(self.out)


def _at_least(config: Any, **minima: float) -> None:
    for name, least in minima.items():
        if not least <= getattr(config, name) < math.inf:
            raise UserError(f"--{name} must be a number of at least {least}, got {getattr(config, name)}")


def _check_target(path: Path) -> None:
    """Known before minutes of work, not after them."""
    if path.suffix.lower() not in WRITERS:
        raise UserError(f"cannot tell the format of {path.name}: use one of {', '.join(WRITERS)}")
    if not path.parent.is_dir():
        raise UserError(f"no directory {path.parent}: make it first")


def run(config: DataCollectConfig | DataSnapshotsConfig) -> None:
    refuse_existing(config.out, config.overwrite)
    dataset = _collect(config) if isinstance(config, DataCollectConfig) else _snapshots(config)
    write(dataset, config.out, _about(config))
    task = find_dsrl_task(config.task)
    if isinstance(config, DataCollectConfig) and task:
        from corsdice.cli.dsrl import show_ranges

        show_ranges(task, data.profile(dataset))


def _about(config: DataCollectConfig | DataSnapshotsConfig) -> dict[str, Any]:
    from corsdice.envs.examine import simulator_versions

    settings = {name: value for name, value in asdict(config).items() if name not in ("out", "overwrite")}
    return made_here(settings, packages=("jax", "numpy", "gymnasium", *simulator_versions()))


def _collect(config: DataCollectConfig) -> data.Dataset:
    from corsdice.envs.campaign import campaign, errands_for

    parts = config.out.with_name(f"{config.out.name}.parts")
    seconds, steps = (60 * config.minutes, math.inf) if config.steps is None else (math.inf, config.steps)
    errands = errands_for(config.task, parts, seconds, config.workers, config.limits, config.seed, steps)
    unit, total = ("seconds", seconds * config.workers) if config.steps is None else ("steps", steps * len(errands))
    shown = 0.0
    try:
        with terminal.progress(round(total), unit) as advance:

            def tell(progress: Sequence[Progress]) -> None:
                nonlocal shown
                spent = sum(getattr(each, unit) for each in progress)
                returns = ", ".join(f"{each.latest_return:,.0f}" for each in progress)
                advance(f"returns {returns}", spent - shown)
                shown = spent

            everything = campaign(errands, config.workers, tell)
    except KeyboardInterrupt:
        raise UserError(f"stopped; what was done is in {parts}: run the same command again to go on") from None
    task = find_dsrl_task(config.task)
    kept = config.episodes or (task.dataset_episodes if task else EPISODES)
    print(f"{everything.transitions:,} transitions in {len(everything.episodes.starts):,} episodes are in {parts}")
    return thin(everything, kept, task.max_cost if task else math.inf, config.seed)


def _snapshots(config: DataSnapshotsConfig) -> data.Dataset:
    from corsdice.envs.snapshots import collect_snapshots  # imports JAX and MuJoCo

    with terminal.progress(config.steps + config.transitions, "steps") as advance:

        def progress(latest: float, steps: int) -> None:
            advance("first episodes" if math.isnan(latest) else f"return {latest:,.0f}", steps)

        return collect_snapshots(
            config.task,
            steps=config.steps,
            transitions=config.transitions,
            snapshots=config.snapshots,
            penalty=config.penalty,
            seed=config.seed,
            progress=progress,
        )
