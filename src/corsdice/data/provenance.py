"""Where a dataset comes from, as a JSON text inside its file.

HDF5 has it in the attribute `provenance`, npz in an array of that name, Parquet in its metadata; CSV cannot hold it.
A file may come from anywhere: what is too large, no JSON object or of another type is no provenance, whatever its name.
"""

from __future__ import annotations

import json
import lzma
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from corsdice import __version__
from corsdice.errors import UserError
from corsdice.files import versions

NAME = "provenance"
LARGEST = 65_536
"""Bytes of its text."""


def made_here(settings: Mapping[str, Any], packages: Sequence[str]) -> dict[str, Any]:
    """Of a dataset that this program made with these settings and packages; it is under the project's own licence."""
    return {
        "source": "made by corsdice",
        "settings": dict(settings),
        "versions": {"corsdice": __version__} | versions(*packages),
        "licence": "MIT",
    }


def with_steps(about: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What was done to the dataset, after what had been done before."""
    before = about.get("steps", [])
    before = before if isinstance(before, list) else [before]
    return {**about, "steps": [*before, *(dict(step) | {"corsdice": __version__} for step in steps)]}


def as_text(about: Mapping[str, Any]) -> str:
    """As JSON in ASCII."""
    try:
        text = json.dumps(dict(about), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"provenance must be what JSON can hold: {error}") from error
    if len(text) > LARGEST:
        raise UserError(f"provenance has {len(text):,} bytes: say it in {LARGEST:,}")
    return text


def from_text(text: str | bytes) -> dict[str, Any] | None:
    """What the text says, if it can be written again."""
    try:
        found = json.loads(text) if len(text) <= LARGEST else None
        if not isinstance(found, dict):
            return None
        as_text(found)
    except (ValueError, RecursionError):
        return None
    return found


def stored(path: Path) -> dict[str, Any] | None:
    """In a file of any format."""
    reader = READERS.get(path.suffix.lower())
    text = reader(path) if reader else None
    return None if text is None else from_text(text)


def _in_hdf5(path: Path) -> str | bytes | None:
    import h5py

    try:
        with h5py.File(path, "r") as file:
            if NAME not in file.attrs:
                return None
            attribute = file.attrs.get_id(NAME)
            kind = h5py.check_string_dtype(attribute.dtype)
            # A text of fixed length says how long it is; another is no longer than the file.
            if attribute.shape != () or kind is None or (kind.length or 0) > LARGEST:
                return None
            text = file.attrs[NAME]
    except (OSError, TypeError, ValueError, RuntimeError, KeyError):
        return None
    return text if isinstance(text, str | bytes) else None


def _in_npz(path: Path) -> bytes | None:
    """The bytes of the array, read by hand: numpy would make room for whatever size the file claims."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{NAME}.npy") as member:
            begins = member.read(10)  # numpy's mark, the version of its format, and how long its header is
            member.read(int.from_bytes(begins[8:], "little"))
            return member.read(LARGEST + 1)
    except (OSError, EOFError, ValueError, RuntimeError, KeyError, zipfile.BadZipFile, zlib.error, lzma.LZMAError):
        return None


def _in_parquet(path: Path) -> bytes | None:
    import pyarrow
    import pyarrow.parquet

    try:
        return (pyarrow.parquet.read_metadata(path).metadata or {}).get(NAME.encode())
    except (pyarrow.ArrowException, OSError):
        return None


READERS: dict[str, Callable[[Path], str | bytes | None]] = {
    ".hdf5": _in_hdf5,
    ".h5": _in_hdf5,
    ".npz": _in_npz,
    ".parquet": _in_parquet,
}
