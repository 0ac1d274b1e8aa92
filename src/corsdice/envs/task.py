"""What a task is: a few pure functions of a state and a key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax


class Step(NamedTuple):
    state: jax.Array
    reward: jax.Array
    cost: jax.Array
    terminated: jax.Array
    """Whether the process is over. The horizon is not the task's business: reaching it is a timeout."""


@dataclass(frozen=True)
class Task:
    """A constrained task whose state is its observation. Actions are in [-1, 1] and clipped to it."""

    name: str
    about: str
    observation_size: int
    action_size: int
    horizon: int
    """Steps after which an episode is cut off."""
    reset: Callable[[jax.Array], jax.Array]
    """key -> state"""
    step: Callable[[jax.Array, jax.Array, jax.Array], Step]
    """(key, state, action) -> Step"""
    controller: Callable[[jax.Array, jax.Array], jax.Array]
    """(style, state) -> action: a scripted driver, from safe and slow (style 0) to fast and reckless (style 1)."""
