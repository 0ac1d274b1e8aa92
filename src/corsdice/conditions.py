"""What a family of policies is asked for, as inputs of its networks: λ, and how closely to imitate.

λ is drawn for every row of a batch, so one training learns ν, Q and the actors for all of them. Positions in [0, 1] are
what people and files never see: they make each range even.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Number = jax.Array | np.ndarray | float


class Range(NamedTuple):
    """Values from one to another, nearly log-uniform by their position in [0, 1]; it may begin at 0."""

    smallest: float
    largest: float
    bend: float = 0.0
    """Where a range that begins at 0 turns from even steps to even ratios."""

    def at(self, position: Number) -> jax.Array:
        """
        >>> [round(float(MULTIPLIERS.at(t)), 2) for t in (0.0, 0.5, 1.0)]
        [0.0, 4.28, 100.0]
        """
        return self._low * jnp.expm1(position * self._span) + self.smallest

    def position(self, value: Number) -> jax.Array:
        """Where a value is; the inverse of `at`."""
        return jnp.log1p((value - self.smallest) / self._low) / self._span

    @property
    def _low(self) -> float:
        return self.smallest + self.bend

    @property
    def _span(self) -> float:
        return math.log((self.largest + self.bend) / self._low)


MULTIPLIERS = Range(0.0, 100.0, bend=0.2)
"""λ in standard units, deviations of the reward over deviations of the cost: from no constraint to a cost that counts a
hundred times as much as the reward, which is next to cost alone."""
IMITATIONS = Range(0.02, 20.0)
"""From next to none to next to nothing else."""
MULTIPLIER_FEATURES, IMITATION_FEATURES = 4, 2


class Point(NamedTuple):
    """A policy of a family: how it acts, and what its networks are asked for."""

    way: str
    multiplier: float
    """λ, in standard units."""
    imitation: float | None = None
    """How closely the improved actor stays with the logged actions; None of the other ways."""


AXES = {"multiplier": MULTIPLIERS, "imitation": IMITATIONS}
"""What may differ between two policies that act in the same way."""


def multiplier_features(position: jax.Array) -> jax.Array:
    """[...] -> [..., 4]: what the networks see of λ."""
    z = 2 * position - 1
    return jnp.stack([z, z**2, jnp.sin(jnp.pi * z), jnp.cos(jnp.pi * z)], -1)


def multiplier_seen(inputs: jax.Array) -> jax.Array:
    """[...] λ of rows [..., columns] whose last columns are `multiplier_features`."""
    return MULTIPLIERS.at((inputs[..., -MULTIPLIER_FEATURES] + 1) / 2)


def imitation_features(position: jax.Array) -> jax.Array:
    """[...] -> [..., 2]: what the improved actor sees of how closely to imitate."""
    z = 2 * position - 1
    return jnp.stack([z, z**2], -1)


def condition_of(point: Point) -> jax.Array:
    """What the networks see beside an observation."""
    of_multiplier = multiplier_features(MULTIPLIERS.position(point.multiplier))
    if point.imitation is None:
        return of_multiplier
    return jnp.concatenate([of_multiplier, imitation_features(IMITATIONS.position(point.imitation))])


def between(one: Point, other: Point) -> Point:
    """The middle of two policies that act in the same way.

    >>> round(between(Point("mode", 0.0), Point("mode", 100.0)).multiplier, 2)
    4.28
    """
    middle = {
        name: float(axis.at((axis.position(getattr(one, name)) + axis.position(getattr(other, name))) / 2))
        for name, axis in AXES.items()
        if getattr(one, name) != getattr(other, name)
    }
    return Point(**(one._asdict() | middle))


def alpha_of(alpha: Number, multiplier: Number) -> jax.Array:
    """α/(1+λ), the weight of the divergence beside (r - λc)/(1+λ)."""
    return jnp.asarray(alpha) / (1 + multiplier)


def conditioned(inputs: jax.Array, condition: jax.Array) -> jax.Array:
    """Rows [..., columns] with the condition [k] or [..., k] beside them."""
    return jnp.concatenate([inputs, jnp.broadcast_to(condition, (*inputs.shape[:-1], condition.shape[-1]))], -1)
