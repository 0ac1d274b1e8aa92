"""Bullet-Safety-Gym 1.4 (Gronauer 2022). It runs as it is, installed without its pin of Gymnasium 0.28."""

from __future__ import annotations

from typing import Any

from corsdice.data.dsrl import DsrlTask
from corsdice.errors import UserError

try:
    import bullet_safety_gym  # registers its tasks
    import gymnasium
except ImportError as error:
    raise UserError(f"{error.name} is not installed: `make sim` installs the simulators") from error

__all__ = ["bullet_safety_gym", "make"]


def make(task: DsrlTask) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(task.id).unwrapped
