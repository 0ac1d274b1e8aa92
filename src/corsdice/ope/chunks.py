"""Logs in chunks, so that the features of few rows are in memory at a time, and what is summed over them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.extraction import (
    RIDGE,
    Basis,
    Model,
    correction_coefficients,
    discounted_features,
    features,
    fit_model,
    project,
)

CHUNK = 4096
"""Rows whose features are in memory at a time."""


class Chunks(NamedTuple):
    """Rows [chunks, CHUNK, ...]; chunk j has every k-th row from the j-th on, so a few chunks are a fair sample."""

    here: jax.Array
    then: jax.Array
    critic_here: jax.Array
    """[chunks, CHUNK, critics] further features: what fitted-Q evaluation thinks of (s, a), and of (s', a')"""
    critic_then: jax.Array
    alive: jax.Array
    """What the features of `then` count for: 0 after a termination"""
    values: jax.Array
    """[chunks, CHUNK, 2]"""
    real: jax.Array
    """0 where the last row of a chunk is padding"""


def chunks_of(*columns: jax.Array) -> Chunks:
    """From all fields but the last."""
    rows = len(columns[0])
    count = -(-rows // CHUNK)
    length = -(-rows // count)
    return Chunks(*(_spread(np.asarray(column), count, length) for column in (*columns, np.ones(rows, np.float32))))


def _spread(column: np.ndarray, count: int, length: int) -> jax.Array:
    padded = np.pad(column, [(0, count * length - len(column)), *[(0, 0)] * (column.ndim - 1)])
    return jnp.asarray(np.swapaxes(padded.reshape(length, count, *column.shape[1:]), 0, 1))


def in_order(chunked: jax.Array, rows: int) -> np.ndarray:
    """[chunks, CHUNK, ...] back into the order of the rows."""
    array = np.swapaxes(np.asarray(chunked), 0, 1)
    return array.reshape(-1, *array.shape[2:])[:rows]


@jax.jit
def phi_of(basis: Basis, inputs: jax.Array, critic: jax.Array) -> jax.Array:
    return jnp.concatenate([features(basis, inputs), critic], -1)


def projected(basis: Basis, inputs: jax.Array, critic: jax.Array, coefficients: jax.Array) -> jax.Array:
    """phi_of @ coefficients, without the features themselves."""
    d = len(basis.roughness)
    return project(basis, inputs, coefficients[:d]) + critic @ coefficients[d:]


class _Moments(NamedTuple):
    gram: jax.Array
    cross: jax.Array
    values: jax.Array


@jax.jit
def fit_chunks(basis: Basis, chunks: Chunks, weights: jax.Array, initial: jax.Array, count: int) -> Model:
    """On the first `count` chunks: a number, not a shape, so a sample and all rows are one compiled program."""

    def add(j: int, total: _Moments) -> _Moments:
        chunk, weight = jax.tree.map(lambda array: array[j], (chunks, weights))
        phi = phi_of(basis, chunk.here, chunk.critic_here)
        following = chunk.alive[:, None] * phi_of(basis, chunk.then, chunk.critic_then)
        weighted = weight[:, None] * phi
        part = _Moments(weighted.T @ phi, following.T @ weighted, weighted.T @ chunk.values)
        return jax.tree.map(jnp.add, total, part)

    d = len(initial)
    nothing = _Moments(jnp.zeros((d, d)), jnp.zeros((d, d)), jnp.zeros((d, 2)))
    total = jax.lax.fori_loop(0, count, add, nothing)
    rows = jnp.where(jnp.arange(len(chunks.real)) < count, chunks.real.sum(1), 0).sum()
    means = _Moments(*(part / rows for part in total))
    roughness = jnp.append(basis.roughness, jnp.ones(d - len(basis.roughness)))
    return fit_model(means.gram, means.cross, means.values, initial, RIDGE * roughness / rows)


@partial(jax.jit, static_argnames="discount")
def corrections_of(basis: Basis, chunks: Chunks, model: Model, discount: float) -> jax.Array:
    """[chunks, CHUNK] θ · φ, discounted"""
    theta = correction_coefficients(model, discounted_features(model, discount))

    def of_chunk(chunk: Chunks) -> jax.Array:
        return projected(basis, chunk.here, chunk.critic_here, theta[:, None])[:, 0]

    return jax.lax.map(of_chunk, chunks)
