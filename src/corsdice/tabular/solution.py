"""What every exact solver returns."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Status(IntEnum):
    """How a solver ended."""

    CONVERGED = 0
    ITERATION_LIMIT = 1
    """The residual is still above the tolerance after all iterations allowed."""
    NOT_FINITE = 2
    INFEASIBLE = 3
    """No multiplier brings the cost under the limit: the logs hold no behaviour that cheap."""


class Solution(NamedTuple):
    w: jax.Array
    """[S, A] the correction; what it corrects (policy or stationary distribution) is the method's nature."""
    policy: jax.Array
    """[S, A] π(a|s) ∝ w(s,a) π_D(a|s); uniform where w is zero for every action."""
    nu: jax.Array
    """[S] the dual variable that was solved for (ν, V or μ)."""
    lam: jax.Array
    """[] the multiplier of the cost constraint; 0 where the method has none, or where it does not bind."""
    residual: jax.Array
    """[] how far the method's own optimality conditions are from holding."""
    iterations: jax.Array
    status: jax.Array
    """[] a `Status`."""


EMPTY_STATE = 1e-8
"""A state with Σ_a w(s,a) π_D(a|s) below this has no defined action: its mass is rounding error."""


def policy_from(w: jax.Array, behaviour: jax.Array) -> jax.Array:
    """π(a|s) ∝ w(s,a) π_D(a|s), uniform in empty states (the convention of tabular DICE)."""
    mass = (w * behaviour).sum(-1, keepdims=True)
    empty = mass < EMPTY_STATE
    return jnp.where(empty, 1 / w.shape[-1], w * behaviour / jnp.where(empty, 1.0, mass))


def how_it_ended(residual: jax.Array, tolerance: float) -> jax.Array:
    below = jnp.where(residual <= tolerance, Status.CONVERGED, Status.ITERATION_LIMIT)
    return jnp.where(jnp.isfinite(residual), below, Status.NOT_FINITE)


LARGEST = 1e8
"""A multiplier λ beyond this many units says that no policy of the logs is as cheap as the limit."""


def multiplier_unit(rewards: jax.Array, costs: jax.Array) -> jax.Array:
    """The natural size of λ: the range of the rewards over the range of the costs."""
    return spread(rewards) / spread(costs)


def spread(values: jax.Array) -> jax.Array:
    """The range of the values, by which to judge what is large; 1 where all are equal."""
    span = jnp.ptp(values)
    return jnp.where(span > 0, span, 1.0)
