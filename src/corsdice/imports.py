"""What a user names on the command line as module:attribute."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from corsdice.errors import UserError


def import_named(name: str) -> Any:
    """The attribute of the module, which may lie beside where the command is run."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, "")  # as `python -m` does
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"cannot import {name}: {error}") from error
    finally:
        sys.path.remove("")
