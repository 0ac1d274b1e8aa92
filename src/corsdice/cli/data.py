"""`corsdice data check`, `convert` and `make`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from corsdice import data
from corsdice.data import Columns, Profile
from corsdice.data.provenance import made_here
from corsdice.errors import UserError, one_line
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


def run(config: DataCheckConfig | DataConvertConfig | DataMakeConfig) -> None:
    if isinstance(config, DataCheckConfig):
        dataset = data.check(data.read(config.source, config.columns), config.action_bounds)
        profile, about = data.profile(dataset, config.limits), data.provenance(config.source)
        if config.json:
            print(json.dumps(profile.as_dict() | {"provenance": about}, indent=2))
        else:
            show(config.source, profile, about)
        return
    refuse_existing(config.target, config.overwrite)
    if isinstance(config, DataMakeConfig):
        from corsdice import envs  # imports JAX

        dataset = envs.collect(envs.task_by_name(config.task), config.seed, config.episodes)
        settings = {"task": config.task, "episodes": config.episodes, "seed": config.seed}
        about = made_here(settings, packages=("jax", "numpy"))
    else:
        dataset = data.check(data.read(config.source, config.columns))
        about = data.provenance(config.source)
    write(dataset, config.target, about)


def refuse_existing(target: Path, overwrite: bool) -> None:
    if target.exists() and not overwrite:
        raise UserError(f"{target} exists: choose another name, or --overwrite")


def write(dataset: data.Dataset, target: Path, about: Mapping[str, Any] | None) -> None:
    data.write(dataset, target, about)
    episodes = len(dataset.episodes.starts)
    print(f"Wrote {dataset.transitions:,} transitions in {episodes:,} episodes to {target}")


def show(source: str, profile: Profile, about: Mapping[str, Any] | None) -> None:
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
    for name, value in (about or {}).items():
        for each in value if isinstance(value, list) else [value]:
            print(one_line(f"provenance, {name}: {each if isinstance(each, str) else json.dumps(each)}"))
