"""Bullet-Safety-Gym 1.4 (Gronauer 2022), installed without its pin of Gymnasium 0.28.

- It silences what C prints in a way that fails unless `sys.stdout` and `sys.stderr` are the real ones, as they are not
  in a notebook or in a test. It is silenced from outside instead.
- It draws from NumPy's global generator, whatever seed `reset` is given. Each environment gets a stream of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from corsdice.data.dsrl import DsrlTask
from corsdice.errors import UserError


@contextmanager
def _silence(number: int) -> Iterator[None]:
    """What C writes to the standard output (1) or error (2) goes nowhere."""
    real = os.dup(number)
    try:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), number)
            yield
    finally:
        os.dup2(real, number)
        os.close(real)


def make(task: DsrlTask) -> gymnasium.Env[Any, Any]:
    _enter()
    return OwnRandomness(gymnasium.make(task.id).unwrapped)


@cache
def _enter() -> None:
    """Imports the package, which registers its tasks, and silences it from outside."""
    try:
        with _silence(2), os.fdopen(os.dup(2), "w") as stream, redirect_stderr(stream):
            from bullet_safety_gym.envs import builder
    except ImportError as error:
        raise UserError(f"{error.name} is not installed: `make sim` installs the simulators") from error
    builder.RedirectStream = lambda stream: _silence(1)


class OwnRandomness(gymnasium.Wrapper[Any, Any, Any, Any]):
    """What the environment draws from NumPy's global generator comes from a stream of its own."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._stream = np.random.RandomState().get_state()

    @contextmanager
    def _own(self) -> Iterator[None]:
        outside = np.random.get_state()  # noqa: NPY002 the package draws there
        np.random.set_state(self._stream)  # noqa: NPY002
        try:
            yield
        finally:
            self._stream = np.random.get_state()  # noqa: NPY002
            np.random.set_state(outside)  # noqa: NPY002

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._stream = np.random.RandomState(seed).get_state()
        with self._own():
            return self.env.reset()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        with self._own():
            return self.env.step(action)
