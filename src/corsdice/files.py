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


def output_directory(path: Path, option: str = "--out") -> Path:
    """The directory `path`, made if need be; the option is where the user chose it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write into {path}: {error.strerror}; choose another {option}") from error
    if not os.access(path, os.W_OK):
        raise UserError(f"cannot write into {path}: no permission; choose another {option}")
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


def write_json(path: Path, content: Mapping[str, Any] | Sequence[Any]) -> None:
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n")


def write_tensors(path: Path, tree: Any, metadata: Mapping[str, str] | None = None) -> None:
    """The arrays of a pytree by the names of their places in it, as safetensors."""
    import jax
    import numpy as np
    from safetensors.numpy import save_file

    arrays = {name: np.asarray(leaf, order="C") for name, leaf in _named_leaves(jax.device_get(tree))}
    with atomic(path) as temporary:
        save_file(arrays, temporary, dict(metadata or {}))
        _sync(temporary)


def read_tensors(path: Path, like: Any) -> Any:
    """The pytree that `write_tensors` wrote, which must have the structure, shapes and types of `like`."""
    import jax
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays = load_file(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except SafetensorError as error:
        raise UserError(f"{path} is damaged: {error}") from error
    leaves = []
    for name, leaf in _named_leaves(like):
        array = arrays.pop(name, None)
        if array is None or array.shape != leaf.shape or array.dtype != leaf.dtype:
            found = "is missing" if array is None else f"has shape {array.shape} and type {array.dtype}"
            raise UserError(
                f"{path}: {name} {found}, expected {leaf.shape} and {leaf.dtype}: written for other settings?"
            )
        leaves.append(array)
    if arrays:
        raise UserError(f"{path}: unexpected {next(iter(arrays))}: written for other settings?")
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def read_tensors_metadata(path: Path) -> dict[str, str]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            return dict(file.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot read {path}: {error}") from error


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    import jax

    return [(jax.tree_util.keystr(place), leaf) for place, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def _sync(path: Path) -> None:
    """What has been written survives a crash of the machine."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def provenance(config: Any, seconds: float) -> dict[str, Any]:
    """What a result needs to be reproduced: the settings, the versions, and how long it took."""
    return {
        "corsdice": __version__,
        "config": dataclasses.asdict(config),
        "seconds": round(seconds, 2),
        "versions": versions("jax", "numpy", "scipy"),
    }


def versions(*packages: str) -> dict[str, str]:
    return {"python": platform.python_version()} | {name: version(name) for name in packages}
