"""Extraction in closed form: what a policy does in an episode, told by linear algebra on features of the logs.

The paper extracts w(s) by training two networks against each other. Here the same flow equations are imposed on test
functions φ_1 … φ_d of (s, a), and w is sought among their combinations. Make the φ orthonormal under the logs,
E_D[φ φᵀ] = 1, and write w_t(s,a) = θ_t · φ(s,a) for the correction of step t. Then the flow

    E_D[w_{t+1} φ(s,a)] = E_D[w_t φ(s',a')],   a' ~ π(·|s'), nothing after a termination,

reads θ_{t+1} = M θ_t with M = E_D[φ(s',a') φ(s,a)ᵀ], θ_0 = E[φ(s_0,a_0)]: no network, no step size, nothing to drift.
The sum over t < H corrects to the undiscounted episode, the unit in which people state limits; weights (1-γ)γ^t give
the discounted correction of the paper. Both are one matrix power series. The dual of the same equations is linear
fitted-Q evaluation, so the two agree here and together give a first-order exact interval (see `ope`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

BANDWIDTHS = (0.5, 1.5)
"""Of the random Fourier features, log-uniform between these: coarse ones carry the mass, fine ones see where cost
begins. For inputs whose columns have deviation 1; divided by √(columns / 6)."""
RELATIVE_TOLERANCE = 1e-5
"""Directions of features that carry less than this share of the largest variance are left out."""


class Basis(NamedTuple):
    """Random Fourier features and the columns themselves, made orthonormal under the logs; the first is constant."""

    frequencies: jax.Array
    """[columns, waves]"""
    phases: jax.Array
    """[waves]"""
    mean: jax.Array
    """[columns + waves]"""
    whitening: jax.Array
    """[columns + waves, features - 1]"""


class Flow(NamedTuple):
    """How a policy moves mass: θ_{t+1} = transition @ θ_t."""

    transition: jax.Array
    """[features, features], M"""
    initial: jax.Array
    """[features], θ_0"""


def raw_features(frequencies: jax.Array, phases: jax.Array, inputs: jax.Array) -> jax.Array:
    """[..., columns] -> [..., columns + waves]"""
    return jnp.concatenate([inputs, jnp.sqrt(2.0) * jnp.cos(inputs @ frequencies + phases)], -1)


def features(basis: Basis, inputs: jax.Array) -> jax.Array:
    """φ: [..., columns] -> [..., features]"""
    centred = raw_features(basis.frequencies, basis.phases, inputs) - basis.mean
    whitened = centred @ basis.whitening
    return jnp.concatenate([jnp.ones((*whitened.shape[:-1], 1)), whitened], -1)


def fit_basis(inputs: np.ndarray, waves: int, seed: int = 0) -> Basis:
    """A basis of features, orthonormal under the rows of inputs [rows, columns].

    The numbers are drawn and factorised once, in float64, outside any compiled program.
    """
    generator = np.random.default_rng(seed)
    columns = inputs.shape[1]
    low, high = np.log(BANDWIDTHS)
    scale = np.exp(generator.uniform(low, high, waves)) / np.sqrt(max(columns, 6) / 6)
    frequencies = jnp.asarray(generator.normal(size=(columns, waves)) * scale, jnp.float32)
    phases = jnp.asarray(generator.uniform(0, 2 * np.pi, waves), jnp.float32)
    raw = np.asarray(raw_features(frequencies, phases, jnp.asarray(inputs)), np.float64)
    mean = raw.mean(0)
    variances, directions = np.linalg.eigh((raw - mean).T @ (raw - mean) / len(raw))
    kept = variances > RELATIVE_TOLERANCE * variances.max()
    whitening = directions[:, kept] / np.sqrt(variances[kept])
    return Basis(frequencies, phases, jnp.asarray(mean, jnp.float32), jnp.asarray(whitening, jnp.float32))


def flow_of(here: jax.Array, following: jax.Array, initial: jax.Array) -> Flow:
    """The flow on rows of features φ(s,a) [n, d], φ(s',a') [n, d], zero after a termination, and φ(s_0,a_0) [m, d].

    `here` must be the rows that the basis is orthonormal under: the noise of M is then that of a regression's
    residual. With the Gram matrix of other rows it would be that of a raw product, and the power series may blow up.
    """
    return Flow(following.T @ here / len(here), initial.mean(0))


def occupancy(flow: Flow, time_weights: jax.Array) -> jax.Array:
    """Σ_t weight_t θ_t: the coefficients [d] of the correction of the states and actions of a whole episode."""

    def step(theta: jax.Array, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
        return flow.transition @ theta, weight * theta

    return jax.lax.scan(step, flow.initial, time_weights)[1].sum(0)
