"""Extraction in closed form: what a policy does in an episode, told by linear algebra on features of the logs.

The paper extracts w(s) by training two networks against each other. Here the same flow equations are imposed on test
functions φ_1 … φ_d of (s, a), and w_t, the correction of step t, is sought among ω(s,a) θ_t · φ(s,a):

    E_D[w_{t+1} φ(s,a)] = E_D[w_t φ(s',a')],   a' ~ π(·|s'), nothing after a termination.

With u_t = E_D[w_t φ], which is E[φ(s_t,a_t)] under the policy, G = E_D[ω φ φᵀ] and A = E_D[ω φ' φᵀ] they read

    u_{t+1} = Pᵀ u_t,   P = G⁻¹ Aᵀ,   u_0 = E[φ(s_0,a_0)],   θ_t = G⁻¹ u_t:

no network, no step size, nothing to drift. P is also the regression of φ(s',a') on φ(s,a), so the same numbers are a
model of the process in the features, and Σ_t c · u_t with c = G⁻¹ E_D[ω x φ], the regression of the reward or cost x,
is linear fitted-Q evaluation: correction and value agree, and together they tell how each row bears on the estimate
(see `ope`). The sum over t < H is the undiscounted episode, the unit in which people state limits; weights (1-γ)γ^t
give the discounted correction of the paper.

ω says where the regressions must be precise. With ω = 1 that is wherever the logs are, and a policy that goes where
they are thin is told by what they hold elsewhere; taken from the correction of an earlier solution it is where the
policy goes (`relevance`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice import linear

BANDWIDTHS = (0.5, 3.0)
"""Of the random Fourier features, log-uniform between these: coarse ones carry the mass, fine ones see where cost
begins. For inputs whose columns have deviation 1; divided by √(columns / 6)."""
RELATIVE_TOLERANCE = 1e-5
"""Directions of features that carry less than this share of the largest variance are left out."""
RIDGE = 1.0
"""Of the regressions: n rows outweigh it in a direction whose variance is more than RIDGE / n of the largest. Small
variance means a rough function, and what a few rows say of that is noise."""
WHITENING_ROWS = 20_000
"""Enough to tell the directions apart; the flow itself is taken on all rows."""
FLOOR, CAP = 0.2, 30.0
"""Of ω: rows where the policy does not go keep a fifth of their say, so that G stays well away from singular; a
correction beyond thirty counts as thirty."""


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
    roughness: jax.Array
    """[features] the largest variance of a direction over its own; 0 for the constant, which is never penalised"""


class Model(NamedTuple):
    """A policy's process in the features, fitted to the logs."""

    gram: jax.Array
    """[d, d], G and the ridge"""
    transition: jax.Array
    """[d, d], P: E[φ(s',a') | s,a] ≈ φ(s,a) @ P"""
    values: jax.Array
    """[d, quantities], c: E[x | s,a] ≈ φ(s,a) @ c"""
    initial: jax.Array
    """[d], u_0"""


def raw_features(frequencies: jax.Array, phases: jax.Array, inputs: jax.Array) -> jax.Array:
    """[..., columns] -> [..., columns + waves]"""
    return jnp.concatenate([inputs, jnp.sqrt(2.0) * jnp.cos(inputs @ frequencies + phases)], -1)


def features(basis: Basis, inputs: jax.Array) -> jax.Array:
    """φ: [..., columns] -> [..., features]"""
    centred = raw_features(basis.frequencies, basis.phases, inputs) - basis.mean
    whitened = centred @ basis.whitening
    return jnp.concatenate([jnp.ones((*whitened.shape[:-1], 1)), whitened], -1)


def project(basis: Basis, inputs: jax.Array, coefficients: jax.Array) -> jax.Array:
    """φ(inputs) @ coefficients [features, k], without φ itself: for few k that is most of the work."""
    centred = raw_features(basis.frequencies, basis.phases, inputs) - basis.mean
    return coefficients[0] + centred @ (basis.whitening @ coefficients[1:])


def fit_basis(inputs: np.ndarray, waves: int, seed: int = 0) -> Basis:
    """A basis of features, orthonormal under the rows of inputs [rows, columns], or a sample of them.

    The numbers are drawn and factorised once, in float64, outside any compiled program.
    """
    generator = np.random.default_rng(seed)
    columns = inputs.shape[1]
    low, high = np.log(BANDWIDTHS)
    scale = np.exp(generator.uniform(low, high, waves)) / np.sqrt(max(columns, 6) / 6)
    frequencies = jnp.asarray(generator.normal(size=(columns, waves)) * scale, jnp.float32)
    phases = jnp.asarray(generator.uniform(0, 2 * np.pi, waves), jnp.float32)
    if len(inputs) > WHITENING_ROWS:
        inputs = inputs[np.sort(generator.permutation(len(inputs))[:WHITENING_ROWS])]
    raw = np.asarray(raw_features(frequencies, phases, jnp.asarray(inputs)), np.float64)
    mean = raw.mean(0)
    variances, directions = np.linalg.eigh((raw - mean).T @ (raw - mean) / len(raw))
    kept = variances > RELATIVE_TOLERANCE * variances.max()
    whitening = directions[:, kept] / np.sqrt(variances[kept])
    roughness = np.append(0.0, variances.max() / variances[kept])
    return Basis(frequencies, phases, *(jnp.asarray(array, jnp.float32) for array in (mean, whitening, roughness)))


def fit_model(
    gram: jax.Array, cross: jax.Array, value_means: jax.Array, initial: jax.Array, penalty: jax.Array
) -> Model:
    """From G, A, E_D[ω x φ] [d, quantities], u_0, and the penalty [d] of each direction, RIDGE · roughness / rows.

    All means are over the same rows: the noise of P is then that of a regression's residual. With the Gram matrix of
    other rows it would be that of a raw product, and its powers blow up.
    """
    gram = gram + jnp.diag(penalty)
    solved = linear.solve(gram, jnp.concatenate([cross.T, value_means], -1))
    return Model(gram, solved[:, : len(gram)], solved[:, len(gram) :], initial)


def expected_features(model: Model, time_weights: jax.Array) -> jax.Array:
    """Σ_t weight_t u_t [d], summed over the steps of an episode."""

    def step(u: jax.Array, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
        return u @ model.transition, weight * u

    return jax.lax.scan(step, model.initial, time_weights)[1].sum(0)


def discounted_features(model: Model, discount: jax.Array | float) -> jax.Array:
    """(1-γ) Σ_t γ^t u_t [d] of the process that no time limit cuts off."""
    operator = jnp.eye(len(model.initial)) - discount * model.transition.T
    return linear.solve(operator, (1 - discount) * model.initial)


def correction_coefficients(model: Model, expected: jax.Array) -> jax.Array:
    """θ = G⁻¹ u [d]: the correction of each row is ω θ · φ."""
    return linear.solve(model.gram, expected)


def relevance(correction: jax.Array) -> jax.Array:
    """ω of each row for the next solution, from the corrections that the last one gave; its mean is 1."""
    positive = jnp.clip(correction, 0.0, CAP)
    return FLOOR + (1 - FLOOR) * positive / jnp.maximum(positive.mean(), 1e-6)
