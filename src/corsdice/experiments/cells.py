"""Results that are kept on disk with all that they depend on, so that they are found again and never stale."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from corsdice.errors import UserError
from corsdice.files import output_directory, write_json


def kept(path: Path, asked: Mapping[str, Any], make: Callable[[], Any]) -> Any:
    """What `make` gives, from the file where that answers the same question; in JSON's types.

    `asked` is all that the result depends on, hashes of files among it.
    """
    if (known := answer(path, asked)) is not None:
        return known
    found = make()
    keep(path, asked, found)
    return found


def keep(path: Path, asked: Mapping[str, Any], found: Any) -> None:
    output_directory(path.parent)
    write_json(path, {"asked": asked, "found": found})


def answer(path: Path, asked: Mapping[str, Any]) -> Any:
    """What the file holds, or None where there is none or it answers another question."""
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
        return content["found"] if content["asked"] == json.loads(json.dumps(asked)) else None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged: delete it, and it is made again") from error


def kept_file(path: Path, asked: Mapping[str, Any], make: Callable[[Path], None]) -> None:
    """Has `make` write the file, unless it is there as it was made for the same question."""
    record = path.with_name(f"{path.name}.json")
    if not path.exists() or answer(record, asked) != hash_of(path):
        make(path)
        keep(record, asked, hash_of(path))


def digest(asked: Mapping[str, Any]) -> str:
    """A short name for all that a result depends on."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:8]


def hash_of(path: Path) -> str:
    """The SHA-256 of a file's content."""
    if not path.is_file():
        raise UserError(f"no file {path}: check --data")
    status = path.stat()
    return _hash_of(path, status.st_mtime_ns, status.st_size)


@lru_cache
def _hash_of(path: Path, changed: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
