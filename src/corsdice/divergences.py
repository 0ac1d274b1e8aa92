"""f-divergences: f, f', (f')^-1, the conjugate f*_0(y) = max_{x>=0} xy - f(x), and its derivative w(y).

Each f is written with f(1) = f'(1) = 0. An affine change of f leaves every correction w as it was (it shifts ν by a
constant), but this choice makes w(0) = 1, so that networks that start at zero start at the behaviour policy.

Every function is finite, with finite gradients, for arguments in ±1e4 in float32 and float64: e^y continues along its
tangent past `_exponent_cap`, log x along its tangent below the smallest normal number, and each branch of a `where`
sees only arguments that are safe for it, so that the unused branch cannot turn a gradient into NaN.

>>> import jax.numpy as jnp
>>> [round(float(SOFT_CHI2.weight(jnp.float32(y))), 4) for y in (-1.0, 0.0, 2.0)]
[0.3679, 1.0, 3.0]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from corsdice.errors import UserError

Elementwise = Callable[[jax.Array], jax.Array]


@dataclass(frozen=True)
class Divergence:
    """A convex f and what DICE needs of it. Hashable, so it can be a static argument of a compiled function."""

    name: str
    f: Elementwise
    f_prime: Elementwise
    f_prime_inverse: Elementwise
    """(f')^-1(y), negative where the unconstrained maximiser of xy - f(x) is."""
    conjugate: Elementwise
    """f*_0(y) = max_{x>=0} xy - f(x)."""
    weight: Elementwise
    """w(y) = max(0, (f')^-1(y)) = (f*_0)'(y), the correction that solves the inner maximisation."""
    weight_prime: Elementwise
    """w'(y) = (f*_0)''(y), the curvature that Newton's method needs."""


def _exponent_cap(y: jax.Array) -> float:
    """Where e^y hands over to its tangent: three quarters of the exponent range leave room for 1e4 times the value."""
    return 0.75 * math.log(float(jnp.finfo(y.dtype).max))


def _exp(y: jax.Array) -> jax.Array:
    """e^y, continued by a constant: the derivative of `_exp_integral`."""
    return jnp.exp(jnp.minimum(y, _exponent_cap(y)))


def _exp_integral(y: jax.Array) -> jax.Array:
    """e^y - 1, continued by its tangent."""
    cap = _exponent_cap(y)
    capped = jnp.minimum(y, cap)
    return jnp.expm1(capped) + jnp.exp(capped) * (y - capped)


def _exp_prime(y: jax.Array) -> jax.Array:
    return jnp.where(y < _exponent_cap(y), _exp(y), 0.0)


def _log(x: jax.Array) -> jax.Array:
    return jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny))


def _entropy(x: jax.Array) -> jax.Array:
    """x log x - x + 1, continued by its tangent below the smallest normal number."""
    positive = jnp.maximum(x, jnp.finfo(x.dtype).tiny)
    log = jnp.log(positive)
    return positive * log - positive + 1 + jax.lax.stop_gradient(log) * (x - positive)


def _half_square(x: jax.Array) -> jax.Array:
    return 0.5 * (x - 1) ** 2


def _below(threshold: float, x: jax.Array, low: Elementwise, high: Elementwise) -> jax.Array:
    """low(x) below the threshold and high(x) from there on, each evaluated only where it is used.

    Not by minimum and maximum: at a tie they pass on half a gradient, and networks start at the tie y = 0.
    """
    under = x < threshold
    return jnp.where(under, low(jnp.where(under, x, threshold)), high(jnp.where(under, threshold, x)))


KL = Divergence(
    name="kl",
    f=_entropy,
    f_prime=_log,
    f_prime_inverse=_exp,
    conjugate=_exp_integral,
    weight=_exp,
    weight_prime=_exp_prime,
)

CHI2 = Divergence(
    name="chi2",
    f=_half_square,
    f_prime=lambda x: x - 1,
    f_prime_inverse=lambda y: y + 1,
    conjugate=lambda y: 0.5 * jnp.maximum(y + 1, 0) ** 2 - 0.5,
    weight=lambda y: jnp.maximum(y + 1, 0),
    weight_prime=lambda y: jnp.where(y > -1, jnp.ones_like(y), 0.0),
)

SOFT_CHI2 = Divergence(
    name="soft-chi2",
    f=lambda x: _below(1.0, x, _entropy, _half_square),
    f_prime=lambda x: _below(1.0, x, _log, lambda x: x - 1),
    f_prime_inverse=lambda y: _below(0.0, y, jnp.exp, lambda y: y + 1),
    conjugate=lambda y: _below(0.0, y, jnp.expm1, lambda y: 0.5 * y**2 + y),
    weight=lambda y: _below(0.0, y, jnp.exp, lambda y: y + 1),
    weight_prime=lambda y: _below(0.0, y, jnp.exp, jnp.ones_like),
)

DIVERGENCES = {divergence.name: divergence for divergence in (KL, CHI2, SOFT_CHI2)}


def by_name(name: str) -> Divergence:
    """The divergence called `name`.

    >>> by_name("chi2") is CHI2
    True
    """
    if name not in DIVERGENCES:
        raise UserError(f"unknown divergence {name!r}: choose one of {', '.join(DIVERGENCES)}")
    return DIVERGENCES[name]
