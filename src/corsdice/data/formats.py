"""Readers and writers: DSRL/D4RL-style HDF5, npz, Parquet and CSV with named columns, and Minari.

The arrays of a file are named as in `Dataset`. A table names them by column: `observation_0`, `observation_1`, …,
`action_0`, …, `reward`, `cost`, `terminal`, `timeout`, and if it has them `next_observation_0`, …; `Columns` says
otherwise. The format is told by the name: .hdf5 .h5 .npz .parquet .csv, `minari:dataset-id`, or `dsrl:task`
for a file of DSRL in its cache.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from corsdice.data.dataset import REQUIRED, Dataset, dataset_from
from corsdice.data.dsrl import dsrl_file
from corsdice.data.provenance import NAME, as_text, stored
from corsdice.errors import UserError
from corsdice.files import atomic

ARRAYS = (*REQUIRED, "next_observations")


@dataclass(frozen=True)
class Columns:
    """The columns of a Parquet or CSV table; an empty choice means the default names."""

    observations: tuple[str, ...] = ()
    """In order; default: observation_0, observation_1, …"""
    actions: tuple[str, ...] = ()
    """In order; default: action_0, action_1, …"""
    next_observations: tuple[str, ...] = ()
    """In order; default: next_observation_0, … if there are such, else the observation of the next row."""
    reward: str = "reward"
    cost: str = "cost"
    terminal: str = "terminal"
    """1 where the process was over after this row."""
    timeout: str = "timeout"
    """1 where only the observation was over after this row."""
    episode: str | None = None
    """A column that numbers the episodes; where it changes without a terminal, the episode timed out."""


def read(source: str | Path, columns: Columns | None = None, needs_cost: bool = True) -> Dataset:
    """The dataset in a file, unjudged: `check` comes next.

    Where no cost is needed, an HDF5 or npz file may be without, as D4RL's are: then every cost is zero.
    """
    if str(source).startswith("minari:"):
        return dataset_from(_read_minari(str(source).removeprefix("minari:")))
    path = _existing_file(source)
    try:
        reader = READERS[path.suffix.lower()]
    except KeyError:
        raise UserError(f"cannot tell the format of {path.name}: use one of {', '.join(READERS)}") from None
    return dataset_from(reader(path, columns or Columns()), needs_cost)


def provenance(source: str | Path) -> dict[str, Any] | None:
    """Where the dataset in a file comes from, as far as the file says; nothing that it says is trusted."""
    return None if str(source).startswith("minari:") else stored(_existing_file(source))


def _existing_file(source: str | Path) -> Path:
    path = dsrl_file(str(source).removeprefix("dsrl:")) if str(source).startswith("dsrl:") else Path(source)
    if not path.is_file():
        raise UserError(f"no file {path}: check the path" if not path.exists() else f"{path} is not a file")
    return path


def write(dataset: Dataset, target: str | Path, about: Mapping[str, Any] | None = None) -> None:
    """Writes the dataset, whole or not at all, in the format that the name tells, with where it comes from."""
    path = Path(target)
    if path.suffix.lower() not in WRITERS:
        raise UserError(f"cannot tell the format of {path.name}: use one of {', '.join(WRITERS)}")
    if not path.parent.is_dir():
        raise UserError(f"no directory {path.parent}: make it first")
    text = None if about is None else as_text(about)
    with atomic(path) as temporary:
        WRITERS[path.suffix.lower()](dataset, temporary, text)


def _read_hdf5(path: Path, _: Columns) -> dict[str, np.ndarray]:
    import h5py

    try:
        with h5py.File(path, "r") as file:
            found = {name: file[name] for name in ARRAYS if name in file}
            for name, data in found.items():
                if not isinstance(data, h5py.Dataset) or data.ndim == 0:
                    raise UserError(f"{name} in {path.name} is not an array")
            return {name: _load(data) for name, data in found.items()}
    except OSError as error:
        raise UserError(f"{path.name} is not a readable HDF5 file: {_first_line(error)}") from error


def _load(data: Any) -> np.ndarray:
    """An HDF5 array, converted while it is read, so that a float64 file never stands twice in memory."""
    if data.dtype.kind != "f":
        return np.asarray(data[()])
    array = np.empty(data.shape, np.float32)
    data.read_direct(array)
    return array


def _read_npz(path: Path, _: Columns) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in ARRAYS if name in file}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        if "pickle" in str(error).lower():
            raise UserError(f"{path.name} holds Python objects, which are never loaded: store plain arrays") from error
        raise UserError(f"{path.name} is not a readable npz file: {_first_line(error)}") from error


def _read_table(path: Path, columns: Columns) -> dict[str, np.ndarray]:
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    load = pyarrow.csv.read_csv if path.suffix.lower() == ".csv" else pyarrow.parquet.read_table
    try:
        table = load(path)
    except pyarrow.ArrowInvalid as error:
        raise UserError(f"{path.name} is not a readable table: {_first_line(error)}") from error
    return _from_table(table, columns)


def _from_table(table: Any, columns: Columns) -> dict[str, np.ndarray]:
    names = table.column_names

    def numbered(prefix: str) -> tuple[str, ...]:
        places = {int(match[1]): name for name in names if (match := re.fullmatch(rf"{prefix}_(\d+)", name))}
        return tuple(places[i] for i in sorted(places))

    def column(name: str) -> np.ndarray:
        if name not in names:
            raise UserError(f"no column {name!r}: the table has {', '.join(names)}")
        values = table.column(name)
        if values.null_count:
            row = int(np.flatnonzero(values.is_null().to_numpy())[0])
            raise UserError(f"column {name!r}, row {row}, is empty: fill it in or leave out that episode")
        array = values.to_numpy()
        if array.dtype.kind not in "fiub":
            raise UserError(f"column {name!r} holds {values.type} values: it must hold numbers")
        return array

    def block(chosen: tuple[str, ...], prefix: str) -> np.ndarray:
        wanted = chosen or numbered(prefix)
        if not wanted:
            raise UserError(f"no columns {prefix}_0, {prefix}_1, …: name the columns; the table has {', '.join(names)}")
        array = np.empty((table.num_rows, len(wanted)), np.float32)
        for i, name in enumerate(wanted):
            array[:, i] = column(name)
        return array

    arrays = {
        "observations": block(columns.observations, "observation"),
        "actions": block(columns.actions, "action"),
        "rewards": column(columns.reward),
        "costs": column(columns.cost),
        "terminals": column(columns.terminal),
    }
    if columns.episode is not None:
        episode = column(columns.episode)
        last = np.append(episode[1:] != episode[:-1], True) if len(episode) else np.zeros(0, bool)
        arrays["timeouts"] = last & (arrays["terminals"] == 0)
    else:
        arrays["timeouts"] = column(columns.timeout)
    if columns.next_observations or numbered("next_observation"):
        arrays["next_observations"] = block(columns.next_observations, "next_observation")
    return arrays


def _read_minari(name: str) -> dict[str, np.ndarray]:
    """Episodes of a local Minari dataset; the cost is `infos["cost"]`, whose entry t + 1 belongs to step t."""
    try:
        import minari
    except ImportError:
        raise UserError("Minari datasets need the package minari: pip install 'corsdice[minari]'") from None
    try:
        episodes = list(minari.load_dataset(name).iterate_episodes())
    except (FileNotFoundError, ValueError) as error:
        raise UserError(f"no local Minari dataset {name!r}: {_first_line(error)}; see `minari list local`") from error
    parts: dict[str, list[np.ndarray]] = {array: [] for array in ARRAYS}
    for episode in episodes:
        steps = len(episode.rewards)
        if "cost" not in (episode.infos or {}):
            raise UserError(f"episode {episode.id} of {name!r} has no infos['cost']: record each step's cost there")
        for array in (episode.observations, episode.actions):
            if not isinstance(array, np.ndarray):
                raise UserError(f"{name!r} has {type(array).__name__} observations or actions: flatten them to arrays")
        cost = np.asarray(episode.infos["cost"])
        parts["observations"].append(episode.observations[:-1])
        parts["next_observations"].append(episode.observations[1:])
        parts["actions"].append(episode.actions)
        parts["rewards"].append(episode.rewards)
        parts["costs"].append(cost[len(cost) - steps :])
        parts["terminals"].append(episode.terminations)
        parts["timeouts"].append(episode.truncations)
    return {array: np.concatenate(values) for array, values in parts.items() if values}


def _write_hdf5(dataset: Dataset, path: Path, about: str | None) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in dataset._asdict().items():
            file.create_dataset(name, data=array, compression="gzip", compression_opts=1)
        if about is not None:
            file.attrs[NAME] = about


def _write_npz(dataset: Dataset, path: Path, about: str | None) -> None:
    arrays = dataset._asdict()
    if about is not None:
        arrays[NAME] = np.array(about.encode())  # bytes, which need no pickle
    np.savez(path, **arrays)


def _to_table(dataset: Dataset) -> Any:
    import pyarrow

    columns: dict[str, np.ndarray] = {}
    for plural, array in dataset._asdict().items():
        name = plural.removesuffix("s")
        if array.ndim == 1:
            columns[name] = array
        else:
            flat = array.reshape(len(array), -1)
            columns |= {f"{name}_{i}": flat[:, i] for i in range(flat.shape[1])}
    return pyarrow.table(columns)


def _write_parquet(dataset: Dataset, path: Path, about: str | None) -> None:
    import pyarrow.parquet

    table = _to_table(dataset).replace_schema_metadata(None if about is None else {NAME: about})
    pyarrow.parquet.write_table(table, path)


def _write_csv(dataset: Dataset, path: Path, _: str | None) -> None:
    import pyarrow.csv

    table = _to_table(dataset)
    for name in ("terminal", "timeout"):  # 0 and 1 rather than words
        place = table.column_names.index(name)
        table = table.set_column(place, name, table.column(name).cast("int8"))
    pyarrow.csv.write_csv(table, path)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


Reader = Callable[[Path, Columns], dict[str, np.ndarray]]
READERS: dict[str, Reader] = {
    ".hdf5": _read_hdf5,
    ".h5": _read_hdf5,
    ".npz": _read_npz,
    ".parquet": _read_table,
    ".csv": _read_table,
}
WRITERS: dict[str, Callable[[Dataset, Path, str | None], None]] = {
    ".hdf5": _write_hdf5,
    ".h5": _write_hdf5,
    ".npz": _write_npz,
    ".parquet": _write_parquet,
    ".csv": _write_csv,
}
