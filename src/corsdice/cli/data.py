"""`corsdice data check`, `convert`, `make` and `collect`."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from corsdice import data
from corsdice.data import Columns, Profile
from corsdice.data.formats import WRITERS
from corsdice.errors import UserError
from corsdice.report import terminal


@dataclass(frozen=True)
class DataCheckConfig:
    """Check a dataset and show what it holds."""

    source: Annotated[str, tyro.conf.Positional]
    """A .hdf5, .h5, .npz, .parquet or .csv file, minari:dataset-id or dsrl:task."""
    limits: tuple[float, ...] = (10.0, 20.0, 40.0)
    """Undiscounted cost limits an episode, for the share of safe episodes."""
    action_bounds: tuple[float, float] | None = None
    """Refuse actions outside these bounds."""
    json: bool = False
    """Print the profile as JSON."""
    columns: Annotated[Columns, tyro.conf.arg(name="")] = field(default_factory=Columns)


@dataclass(frozen=True)
class DataConvertConfig:
    """Check a dataset and write it in another format, told by the name of the target."""

    source: Annotated[str, tyro.conf.Positional]
    """A .hdf5, .h5, .npz, .parquet or .csv file, minari:dataset-id or dsrl:task."""
    target: Annotated[Path, tyro.conf.Positional]
    """A .hdf5, .h5, .npz, .parquet or .csv file."""
    overwrite: bool = False
    """Replace the target if it exists."""
    columns: Annotated[Columns, tyro.conf.arg(name="")] = field(default_factory=Columns)


@dataclass(frozen=True)
class DataMakeConfig:
    """Make logs of an embedded task: scripted drivers, from safe and slow to fast and reckless."""

    task: Annotated[str, tyro.conf.Positional]
    """point-circle, point-run or point-ridge."""
    target: Annotated[Path, tyro.conf.Positional]
    """A .hdf5, .h5, .npz, .parquet or .csv file."""
    episodes: int = 1000
    """One of each driver."""
    seed: int = 0
    overwrite: bool = False
    """Replace the target if it exists."""

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise UserError(f"--episodes must be at least 1, got {self.episodes}")


@dataclass(frozen=True)
class DataCollectConfig:
    """Train an online agent in MuJoCo and log snapshots of it, from untrained to trained (extra `mujoco`)."""

    task: Annotated[str, tyro.conf.Positional]
    """hopper, walker2d or halfcheetah; a step costs 1 above a speed limit."""
    out: Path
    """A .hdf5, .h5, .npz, .parquet or .csv file."""
    steps: int = 1_000_000
    """Of the simulator, to train for."""
    transitions: int = 200_000
    """To log, about: whole episodes, the same share from each snapshot."""
    snapshots: int = 12
    """Evenly spaced over the training; the first is untrained."""
    penalty: float = 0.0
    """The agent learns from reward - penalty cost; the logs hold both apart."""
    seed: int = 0
    overwrite: bool = False
    """Replace the file if it exists."""

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("transitions", 1), ("snapshots", 2), ("penalty", 0), ("seed", 0)):
            if not least <= getattr(self, name) < math.inf:
                raise UserError(f"--{name} must be a number of at least {least}, got {getattr(self, name)}")
        # Known before minutes of training, not after them.
        if self.out.suffix.lower() not in WRITERS:
            raise UserError(f"cannot tell the format of {self.out.name}: use one of {', '.join(WRITERS)}")
        if not self.out.parent.is_dir():
            raise UserError(f"no directory {self.out.parent}: make it first")


def run(config: DataCheckConfig | DataConvertConfig | DataMakeConfig | DataCollectConfig) -> None:
    if isinstance(config, DataCheckConfig):
        dataset = data.check(data.read(config.source, config.columns), config.action_bounds)
        profile = data.profile(dataset, config.limits)
        if config.json:
            print(json.dumps(profile.as_dict(), indent=2))
        else:
            show(config.source, profile)
        return
    target = config.out if isinstance(config, DataCollectConfig) else config.target
    if target.exists() and not config.overwrite:
        raise UserError(f"{target} exists: choose another name, or --overwrite")
    if isinstance(config, DataCollectConfig):
        dataset = _collect(config)
    elif isinstance(config, DataMakeConfig):
        from corsdice import envs  # imports JAX

        dataset = envs.collect(envs.task_by_name(config.task), config.seed, config.episodes)
    else:
        dataset = data.check(data.read(config.source, config.columns))
    data.write(dataset, target)
    episodes = len(dataset.episodes.starts)
    print(f"Wrote {dataset.transitions:,} transitions in {episodes:,} episodes to {target}")


def _collect(config: DataCollectConfig) -> data.Dataset:
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


def show(source: str, profile: Profile) -> None:
    low, high = profile.action_range
    print(f"{source}: {profile.transitions:,} transitions in {profile.episodes:,} episodes, ", end="")
    print(f"{profile.terminated:,} terminated and {profile.episodes - profile.terminated:,} timed out")
    print(f"observations {profile.observation_shape}, actions {profile.action_shape} in [{low:g}, {high:g}]")
    terminal.print_table(
        "By episode, undiscounted",
        ("", *profile.length),
        [
            (name, *(f"{value:.5g}" for value in quantiles.values()))
            for name, quantiles in (
                ("steps", profile.length),
                ("return", profile.episode_return),
                ("cost", profile.episode_cost),
            )
        ],
    )
    for limit, share in profile.safe_share.items():
        print(f"cost <= {limit}: {share:.1%} of the episodes")
    print(f"steps with a cost: {profile.costly_steps:.1%}")
    print(f"rows whose observation and action stood before: {profile.duplicates:,}")
    for name, constant in (("observation", profile.constant_observations), ("action", profile.constant_actions)):
        if constant:
            print(f"{name} columns that never change: {', '.join(map(str, constant))}")
