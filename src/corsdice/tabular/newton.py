"""Roots of monotone vector fields, such as gradients of convex functions, by regularised Newton steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from corsdice import linear

MAX_ITERATIONS = 300


class Root(NamedTuple):
    x: jax.Array
    residual: jax.Array
    """[] Σ |field(x)|."""
    iterations: jax.Array


def monotone_root(
    field: Callable[[jax.Array], jax.Array],
    jacobian: Callable[[jax.Array], jax.Array],
    start: jax.Array,
    tolerance: float,
) -> Root:
    """x with field(x) = 0, where the symmetric part of the Jacobian is positive semi-definite.

    Each step solves (J + ρ D) δ = -field, D the diagonal of J: Newton for small ρ, a short scaled gradient step for
    large ρ. ρ falls when a step does not increase Σ |field| and rises when it does, so that pieces where J is singular
    (a weight clipped at zero) cannot trap the search.
    """

    class Loop(NamedTuple):
        x: jax.Array
        value: jax.Array
        damping: jax.Array
        iterations: jax.Array

    def size(value: jax.Array) -> jax.Array:
        return jnp.abs(value).sum()

    def unfinished(loop: Loop) -> jax.Array:
        return (size(loop.value) > tolerance) & (loop.iterations < MAX_ITERATIONS)

    def step(loop: Loop) -> Loop:
        matrix = jacobian(loop.x)
        diagonal = jnp.diag(matrix)
        ridge = jnp.maximum(diagonal, 1e-9 * diagonal.max()) * loop.damping
        x = loop.x - linear.solve(matrix + jnp.diag(ridge), loop.value)
        value = field(x)
        better = size(value) <= size(loop.value)
        return Loop(
            x=jnp.where(better, x, loop.x),
            value=jnp.where(better, value, loop.value),
            damping=jnp.clip(jnp.where(better, loop.damping / 10, loop.damping * 10), 1e-14, 1e10),
            iterations=loop.iterations + 1,
        )

    loop = jax.lax.while_loop(unfinished, step, Loop(start, field(start), jnp.array(1e-6), jnp.array(0)))
    return Root(loop.x, size(loop.value), loop.iterations)
