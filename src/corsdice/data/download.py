"""DSRL's files, fetched whole and checked, or not at all."""

from __future__ import annotations

import fcntl
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from corsdice.data.dsrl import DsrlTask
from corsdice.data.resumable import FetchError, Progress, discard, fetch
from corsdice.errors import UserError, one_line
from corsdice.files import output_directory

SERVER = "http://data.offline-saferl.org/download"


def download(
    task: DsrlTask,
    directory: Path,
    mirror: str | None = None,
    *,
    timeout: float = 30.0,
    retries: int = 3,
    pause: float = 1.0,
    progress: Progress = lambda here, total: None,
) -> Path:
    """The task's file, fetched into the directory; an older one gives way only to one that is whole and sound."""
    url = address(task, mirror)
    target = output_directory(directory, "--directory") / task.dataset_file
    part = part_of(target)
    remedy = f"choose another server with --mirror, or make logs here with `corsdice data collect {task.task}`"
    try:
        with _locked(target):
            fetch(url, part, timeout=timeout, retries=retries, pause=pause, progress=progress)
            if wrong := fault(part, task):
                discard(part)
                raise UserError(f"{url} is not the dataset of {task.task}, but {wrong}; it was removed: {remedy}")
            part.replace(target)
            discard(part)
    except FetchError as error:
        raise UserError(f"{error}; {remedy}") from error
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror or error}; choose another --directory") from error
    return target


def address(task: DsrlTask, mirror: str | None = None) -> str:
    """Of the task's file: on the mirror, else on $DSRL_MIRROR, else on DSRL's own server."""
    base = mirror or os.environ.get("DSRL_MIRROR") or SERVER
    try:
        parts = urlsplit(base)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not re.fullmatch("[!-~]+", base):
        raise UserError(f"{base!r} is no server: --mirror and DSRL_MIRROR are addresses like {SERVER}")
    return f"{base.rstrip('/')}/{task.dataset_file}"


def part_of(target: Path) -> Path:
    """Where a file lies until it is whole."""
    return target.with_name(f"{target.name}.part")


def fault(path: Path, task: DsrlTask) -> str | None:
    """What a file is instead of the task's dataset; None if it has DSRL's arrays in the task's sizes."""
    import h5py

    widths = {"observations": task.obs_dim, "next_observations": task.obs_dim, "actions": task.act_dim}
    widths |= dict.fromkeys(("rewards", "costs", "terminals", "timeouts"), 1)
    try:
        with h5py.File(path, "r") as file:
            found = {name: file.get(name) for name in widths}
            shapes = {name: array.shape or () for name, array in found.items() if isinstance(array, h5py.Dataset)}
    except (OSError, RuntimeError) as error:
        with path.open("rb") as raw:
            start = raw.read(40)
        return f"{path.stat().st_size:,} bytes that begin with {start!r} ({one_line(error)})"
    if missing := [name for name in widths if name not in shapes]:
        return f"an HDF5 file without {', '.join(missing)}"
    rows = {shape[:1] for shape in shapes.values()}
    if len(rows) > 1 or rows <= {(), (0,)}:
        return f"an HDF5 file with unequal rows or none: {', '.join(f'{k} {shape}' for k, shape in shapes.items())}"
    for name, width in widths.items():
        if math.prod(shapes[name][1:]) != width:
            return f"an HDF5 file with {name} {shapes[name]}, where a row of {task.task} has {width}"
    return None


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """For one process at a time; the lock ends with its process, however that ends.

    The empty file stays: were it removed, one process could hold a lock on the old file and another on a new one.
    """
    with target.with_name(f".{target.name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{target} is being downloaded by another process: wait for that one") from None
        yield
