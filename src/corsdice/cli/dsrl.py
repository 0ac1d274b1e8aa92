"""`corsdice data list`, `show` and `download`: the datasets of DSRL."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from corsdice import data
from corsdice.cli.data import show
from corsdice.data import Profile
from corsdice.data.dsrl import DSRL_TASKS, DsrlTask, Suite, dsrl_directory, dsrl_task
from corsdice.errors import UserError
from corsdice.report import terminal


@dataclass(frozen=True)
class DataListConfig:
    """List the 38 datasets of DSRL, and which of them are here."""

    suite: Suite | None = None
    """Only those of one simulator."""
    json: bool = False
    """Print the list as JSON."""


@dataclass(frozen=True)
class DataShowConfig:
    """Show what DSRL says of a task, and if its file is here what that holds."""

    task: Annotated[str, tyro.conf.Positional]
    """By any of its names: AntCircle, SafetyAntCircle-v0, OfflineAntCircle-v0."""
    json: bool = False
    """Print it as JSON."""


@dataclass(frozen=True)
class DataDownloadConfig:
    """Fetch datasets of DSRL; one that was stopped goes on from where it was."""

    tasks: Annotated[tuple[str, ...], tyro.conf.Positional]
    """By any of their names; `corsdice data list` shows them."""
    mirror: str | None = None
    """Address to which a file's name is added; DSRL_MIRROR or DSRL's own server unless said."""
    directory: Path | None = None
    """Where to; DSRL_DATASET_DIR or ~/.dsrl/datasets unless said."""
    force: bool = False
    """Fetch what is here already."""


def run(config: DataListConfig | DataShowConfig | DataDownloadConfig) -> None:
    match config:
        case DataListConfig():
            _list(config)
        case DataShowConfig():
            _show(config)
        case DataDownloadConfig():
            _download(config)


def _list(config: DataListConfig) -> None:
    tasks = [task for task in DSRL_TASKS.values() if config.suite in (None, task.suite)]
    if config.json:
        print(json.dumps([_as_dict(task) for task in tasks], indent=2))
        return
    for suite in dict.fromkeys(task.suite for task in tasks):
        terminal.print_table(
            suite,
            ("task", "obs., act.", "steps", "cost limits", "return", "file", "here"),
            [
                (
                    task.task,
                    f"{task.obs_dim}, {task.act_dim}",
                    str(task.horizon),
                    _limits(task),
                    f"{task.min_return:.1f} to {task.max_return:.1f}",
                    task.dataset_file,
                    "yes" if _cached(task) else "-",
                )
                for task in tasks
                if task.suite == suite
            ],
        )
    print(f"files are kept in {dsrl_directory()}")


def _show(config: DataShowConfig) -> None:
    task = dsrl_task(config.task)
    path = _cached(task)
    profile = about = None
    if path:
        profile = data.profile(data.check(data.read(path)), (task.tight_cost_limit, *task.cost_limits))
        about = data.provenance(path)
    if config.json:
        print(json.dumps(_as_dict(task) | {"profile": profile and profile.as_dict(), "provenance": about}, indent=2))
        return
    print(f"{', '.join(task.names)} ({task.suite})")
    print(f"observations ({task.obs_dim},), actions ({task.act_dim},), episodes of {task.horizon} steps")
    print(f"cost limits {_limits(task)} an episode; {task.tight_cost_limit:g} in the paper's Table 3")
    show_ranges(task, profile)
    if profile:
        show(str(path), profile, about)
    else:
        print(f"{task.dataset_file} is not in {dsrl_directory()}: fetch it with `corsdice data download {task.task}`")


def show_ranges(task: DsrlTask, profile: Profile | None) -> None:
    """What DSRL normalises by, beside what the file has."""
    rows = {"return": [task.min_return, task.max_return], "cost": [task.min_cost, task.max_cost]}
    if profile:
        rows["return"] += [profile.episode_return["least"], profile.episode_return["most"]]
        rows["cost"] += [profile.episode_cost["least"], profile.episode_cost["most"]]
    columns = ("", "DSRL's least", "DSRL's most", *(("the file's least", "the file's most") if profile else ()))
    terminal.print_table(
        "Reference ranges, by episode, undiscounted",
        columns,
        [(name, *(f"{value:.5g}" for value in values)) for name, values in rows.items()],
    )


def _download(config: DataDownloadConfig) -> None:
    from corsdice.data.download import fault  # imports what the network needs

    directory = config.directory or dsrl_directory()
    tasks = [dsrl_task(name) for name in config.tasks]  # a wrong name is known before minutes of fetching
    if not tasks:
        raise UserError("name at least one task: `corsdice data list` shows the 38 of DSRL")
    for task in tasks:
        target = directory / task.dataset_file
        if config.force or not target.is_file():
            _fetch(task, target, config.mirror)
            print(f"Wrote {target} ({target.stat().st_size / 1e6:,.1f} MB)")
        elif wrong := fault(target, task):
            raise UserError(f"{target} is not the dataset of {task.task}, but {wrong}: --force replaces it")
        else:
            print(f"{target} is here already; --force fetches it again")


def _fetch(task: DsrlTask, target: Path, mirror: str | None) -> None:
    from corsdice.data.download import download, part_of

    shown = 0
    try:
        with terminal.progress(None, "MB") as advance:

            def progress(here: int, total: int | None) -> None:
                nonlocal shown
                advance(task.task, (here - shown) / 1e6, total=total and total / 1e6)
                shown = here

            download(task, target.parent, mirror, progress=progress)
    except KeyboardInterrupt:
        part = part_of(target)
        if not part.exists():
            raise
        raise UserError(f"stopped; what has arrived is in {part}: run the same command again to go on") from None


def _cached(task: DsrlTask) -> Path | None:
    path = dsrl_directory() / task.dataset_file
    return path if path.is_file() else None


def _limits(task: DsrlTask) -> str:
    return ", ".join(f"{limit:g}" for limit in task.cost_limits)


def _as_dict(task: DsrlTask) -> dict[str, Any]:
    path = _cached(task)
    return asdict(task) | {"names": task.names, "cached": str(path) if path else None}
