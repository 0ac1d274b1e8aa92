"""What a family of policies is asked for: λ, and how closely to imitate, as inputs of its networks.

λ is drawn for every row of a batch, so one training learns ν, Q and the actors for all of them. Positions in [0, 1] are
what people and files never see: they make the range of λ even, from 0, no constraint, to a cost that counts a hundred
times as much as the reward, which is next to cost alone.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

SMALLEST_MULTIPLIER, LARGEST_MULTIPLIER = 0.2, 100.0
"""In standard units, deviations of the reward over deviations of the cost: about where λ begins to matter, and where
nothing else does any more."""
SMALLEST_IMITATION, LARGEST_IMITATION = 0.02, 20.0
SMALLEST_ALPHA = 0.01
"""Of α/(1+λ), in parts of α."""
MULTIPLIER_FEATURES, IMITATION_FEATURES = 4, 2


class Point(NamedTuple):
    """A policy of a family: how it acts, and what its networks are asked for."""

    way: str
    multiplier: float
    """λ, in standard units."""
    imitation: float | None = None
    """How closely the improved actor stays with the logged actions; None of the other ways."""


def multiplier_of(position: jax.Array | float) -> jax.Array:
    """λ at a position in [0, 1]: exactly 0 at 0, then nearly log-uniform.

    >>> [round(float(multiplier_of(t)), 2) for t in (0.0, 0.5, 1.0)]
    [0.0, 4.28, 100.0]
    """
    return SMALLEST_MULTIPLIER * jnp.expm1(position * jnp.log1p(LARGEST_MULTIPLIER / SMALLEST_MULTIPLIER))


def position_of(multiplier: jax.Array | float) -> jax.Array:
    """Where a λ is; the inverse of `multiplier_of`."""
    return jnp.log1p(multiplier / SMALLEST_MULTIPLIER) / jnp.log1p(LARGEST_MULTIPLIER / SMALLEST_MULTIPLIER)


def multiplier_features(position: jax.Array) -> jax.Array:
    """[...] -> [..., 4]: what the networks see of λ."""
    z = 2 * position - 1
    return jnp.stack([z, z**2, jnp.sin(jnp.pi * z), jnp.cos(jnp.pi * z)], -1)


def imitation_of(position: jax.Array | float) -> jax.Array:
    """The weight of imitation at a position in [0, 1]: from next to none to next to nothing else, log-uniform."""
    return SMALLEST_IMITATION * (LARGEST_IMITATION / SMALLEST_IMITATION) ** jnp.asarray(position)


def closeness_of(imitation: jax.Array | float) -> jax.Array:
    """Where a weight of imitation is; the inverse of `imitation_of`."""
    return jnp.log(imitation / SMALLEST_IMITATION) / jnp.log(LARGEST_IMITATION / SMALLEST_IMITATION)


def imitation_features(position: jax.Array) -> jax.Array:
    """[...] -> [..., 2]: what the improved actor sees of it."""
    z = 2 * position - 1
    return jnp.stack([z, z**2], -1)


def between(one: Point, other: Point) -> Point:
    """The middle of two policies that act in the same way and differ in λ or in imitation.

    >>> round(between(Point("mode", 0.0), Point("mode", 100.0)).multiplier, 2)
    4.28
    """
    multiplier, imitation = one.multiplier, one.imitation
    if multiplier != other.multiplier:
        multiplier = float(multiplier_of((position_of(multiplier) + position_of(other.multiplier)) / 2))
    if imitation is not None and other.imitation is not None and imitation != other.imitation:
        imitation = float(imitation_of((closeness_of(imitation) + closeness_of(other.imitation)) / 2))
    return Point(one.way, multiplier, imitation)


def condition_of(point: Point) -> jax.Array:
    """What the networks see beside an observation."""
    of_multiplier = multiplier_features(position_of(jnp.float32(point.multiplier)))
    if point.imitation is None:
        return of_multiplier
    return jnp.concatenate([of_multiplier, imitation_features(closeness_of(jnp.float32(point.imitation)))])


def alpha_of(alpha: jax.Array | float, multiplier: jax.Array | float) -> jax.Array:
    """α/(1+λ), the weight of the divergence beside (r - λc)/(1+λ); held away from 0, where weights would be greedy."""
    return alpha * jnp.maximum(1 / (1 + multiplier), SMALLEST_ALPHA)


def multiplier_seen(inputs: jax.Array) -> jax.Array:
    """[...] λ of rows [..., columns] whose last columns are `multiplier_features`."""
    return multiplier_of((inputs[..., -MULTIPLIER_FEATURES] + 1) / 2)


def conditioned(inputs: jax.Array, condition: jax.Array) -> jax.Array:
    """Rows [..., columns] with the condition [k] or [..., k] beside them."""
    return jnp.concatenate([inputs, jnp.broadcast_to(condition, (*inputs.shape[:-1], condition.shape[-1]))], -1)
