"""How each logged transition bears on an estimate, to first order, which gives the interval over episodes.

Correction and value are dual: the estimate is Σ_t c · u_t, and with v_t = c + P v_{t+1}, the value of the steps from t
on, it is also v_0 · u_0. Together they say

    ψ = Σ_t w_t(s,a) (x + v_{t+1}(s',a') - v_t(s,a)).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice import linear
from corsdice.extraction import Basis, Model, correction_coefficients, discounted_features
from corsdice.ope.chunks import Chunks, projected

RANK = 32
"""Directions kept of the corrections of all steps of an episode, in the influence of a row: they change slowly with
time, and the rest is below a thousandth of them."""


class Influence(NamedTuple):
    rows: jax.Array
    """[chunks, CHUNK, 2]"""
    first: jax.Array
    """[d, 2] v_0"""
    corrections: jax.Array
    """[chunks, CHUNK] Σ_t w_t"""


class _Sum(NamedTuple):
    """Σ_t θ_t v_tᵀ and Σ_t θ_t v_{t+1}ᵀ by their leading directions."""

    thetas: jax.Array
    """[d] Σ_t θ_t"""
    directions: jax.Array
    """[d, rank]"""
    here: jax.Array
    """[d, rank, 2] of v_t"""
    then: jax.Array
    """[d, rank, 2] of v_{t+1}"""
    first: jax.Array
    """[d, 2] v_0"""


@partial(jax.jit, static_argnames=("horizon", "discount"))
def influences(
    basis: Basis, chunks: Chunks, weights: jax.Array, model: Model, horizon: int, discount: float
) -> list[Influence]:
    """ψ of the discounted process and of the episode, in one pass over the features."""
    sums = [_discounted_sum(model, discount), _episode_sum(model, horizon)]
    left = [jnp.concatenate([each.thetas[:, None], each.directions, _flat(each.here)], -1) for each in sums]
    right = [_flat(each.then) for each in sums]

    def of_chunk(rows: tuple[Chunks, jax.Array]) -> list[tuple[jax.Array, jax.Array]]:
        chunk, weight = rows
        here = projected(basis, chunk.here, chunk.critic_here, jnp.concatenate(left, -1))
        then = chunk.alive[:, None] * projected(basis, chunk.then, chunk.critic_then, jnp.concatenate(right, -1))
        return [
            _influence(weight, chunk.values, *parts)
            for parts in zip(_parted(here, left), _parted(then, right), strict=True)
        ]

    found = jax.lax.map(of_chunk, (chunks, weights))
    return [Influence(psi, each.first, w) for (psi, w), each in zip(found, sums, strict=True)]


def _influence(weight: jax.Array, values: jax.Array, here: jax.Array, then: jax.Array) -> tuple[jax.Array, jax.Array]:
    """ψ and Σ_t w_t of the rows of a chunk, from their features along `left` and `right`."""
    rank = then.shape[1] // 2
    w, along, value = here[:, 0], here[:, 1 : 1 + rank], here[:, 1 + rank :]
    temporal = (then - value).reshape(-1, rank, 2)
    psi = values * w[:, None] + (along[..., None] * temporal).sum(-2)
    return weight[:, None] * psi, weight * w


def _discounted_sum(model: Model, discount: float) -> _Sum:
    """v = c + γ P v at all times, and Σ_t γ^t θ_t: one direction."""
    thetas = correction_coefficients(model, discounted_features(model, discount)) / (1 - discount)
    v = linear.solve(jnp.eye(len(thetas)) - discount * model.transition, model.values)
    return _Sum(thetas, thetas[:, None], v[:, None], discount * v[:, None], v)


def _episode_sum(model: Model, horizon: int) -> _Sum:
    def forward(u: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return u @ model.transition, u

    def backward(v: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return model.values + model.transition @ v, v

    thetas = linear.solve(model.gram, jax.lax.scan(forward, model.initial, length=horizon)[1].T).T
    first, after = jax.lax.scan(backward, jnp.zeros_like(model.values), length=horizon, reverse=True)
    values = jnp.concatenate([first[None], after[:-1]])
    times, sizes, directions = jnp.linalg.svd(thetas, full_matrices=False)
    rank = min(RANK, *thetas.shape)
    times = times[:, :rank] * sizes[:rank]
    here, then = (jnp.einsum("tr,tdq->drq", times, each) for each in (values, after))
    return _Sum(thetas.sum(0), directions[:rank].T, here, then, first)


def _flat(directions: jax.Array) -> jax.Array:
    return directions.reshape(len(directions), -1)


def _parted(joined: jax.Array, parts: list[jax.Array]) -> list[jax.Array]:
    """The columns of each part again."""
    return jnp.split(joined, np.cumsum([part.shape[1] for part in parts])[:-1], -1)
