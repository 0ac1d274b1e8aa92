"""Files are written whole or not at all: into a temporary file beside the target, then renamed."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from corsdice import __version__
from corsdice.errors import UserError


def output_directory(path: Path) -> Path:
    """The directory `path`, made if need be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write into {path}: {error.strerror}; choose another --out") from error
    if not os.access(path, os.W_OK):
        raise UserError(f"cannot write into {path}: no permission; choose another --out")
    return path


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path to write to; it becomes `path` when the block ends without an exception."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    with atomic(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n")


def provenance(config: Any, seconds: float) -> dict[str, Any]:
    """What a result needs to be reproduced: the settings, the versions, and how long it took."""
    return {
        "corsdice": __version__,
        "config": dataclasses.asdict(config),
        "seconds": round(seconds, 2),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in ("jax", "numpy", "scipy")},
    }
