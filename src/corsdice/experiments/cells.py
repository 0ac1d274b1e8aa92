"""A cell: a JSON file with what was asked for and what came of it, so that a second run does not do it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corsdice.errors import UserError


def is_done(path: Path, asked: Mapping[str, Any]) -> bool:
    """Whether the cell is on disk; one that was asked for something else is refused. `asked` has JSON's types."""
    if not path.exists():
        return False
    found = json.loads(path.read_text())["asked"]
    for name, value in asked.items():
        if found.get(name) != value:
            raise UserError(f"{path} was made with {name} {found.get(name)}, now {value}: choose another --out")
    return True
