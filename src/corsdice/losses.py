"""The losses of the paper, one pure function for each equation: arrays in, scalar out.

Every array has one entry a transition of the batch, except `mu_initial` and what is said otherwise. Means are over the
batch, or weighted by `weights` that sum to 1: with the probabilities of all transitions of a finite MDP as weights a
loss is an exact expectation, which is how it is tested against the exact solvers.
"""

from __future__ import annotations

import jax

from corsdice.divergences import Divergence


def _mean(values: jax.Array, weights: jax.Array | None) -> jax.Array:
    return values.mean() if weights is None else (weights * values).sum()


def flow_error(mu: jax.Array, mu_next: jax.Array, discount: jax.Array | float) -> jax.Array:
    """ê_μ(s,s') = γ μ(s') - μ(s); pass μ(s') = 0 where s' ends the episode (a termination, never a timeout)."""
    return discount * mu_next - mu


def extraction_a_loss(
    a: jax.Array, policy_correction: jax.Array, e_mu: jax.Array, weights: jax.Array | None = None
) -> jax.Array:
    """E_D[(A(s) - w(a|s) ê_μ(s,s'))²] (label u-loss); a function of A, with w and ê_μ held."""
    return _mean((a - jax.lax.stop_gradient(policy_correction * e_mu)) ** 2, weights)


def extraction_mu_loss(
    divergence: Divergence,
    a: jax.Array,
    policy_correction: jax.Array,
    e_mu: jax.Array,
    mu_initial: jax.Array,
    discount: jax.Array | float,
    weights: jax.Array | None = None,
    initial_weights: jax.Array | None = None,
) -> jax.Array:
    """(1-γ) E_{p_0}[μ(s_0)] + E_D[(f*_0)'(A(s)) w(a|s) ê_μ(s,s')] (label mu-loss); a function of μ, with A held."""
    held = jax.lax.stop_gradient(divergence.weight(a) * policy_correction)
    return (1 - discount) * _mean(mu_initial, initial_weights) + _mean(held * e_mu, weights)
