"""Extraction: from a policy correction w(a|s) to the state correction w(s), in three ways that must agree.

(a) `extraction` solves the |S| flow equations, which determine w(s) by themselves;
(b) `extraction_dual` minimises the convex dual L_ext(μ) (label eq:extraction-0), for any f;
(c) `extraction_a_mu` alternates the two losses of section 5 (labels u-loss, mu-loss), which need only samples.

Each returns w(s,a) = w(s) w(a|s), a stationary correction. (a) works with sparse successors at any size; (b) and (c)
hold dense [S, S] matrices and are here to be compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from corsdice import losses
from corsdice.divergences import CHI2, Divergence
from corsdice.tabular.logs import LoggedMDP
from corsdice.tabular.mdp import expected_next, policy_matrix, solve_flow
from corsdice.tabular.newton import monotone_root
from corsdice.tabular.precision import require_float64
from corsdice.tabular.solution import Solution, how_it_ended, policy_from
from corsdice.tabular.violations import flow_violation

TOLERANCE = 1e-9
"""Of the flow violation Σ_s |(1-γ) p_0 + γ T_* d_w - d_w|."""


def _finish(
    logged: LoggedMDP, policy_correction: jax.Array, state_correction: jax.Array, mu: jax.Array, iterations: jax.Array
) -> Solution:
    w = state_correction[:, None] * policy_correction
    residual = flow_violation(logged, w)
    return Solution(
        w=w,
        policy=policy_from(policy_correction, logged.behaviour),
        nu=mu,
        lam=jnp.array(0.0),
        residual=residual,
        iterations=iterations,
        status=how_it_ended(residual, TOLERANCE),
    )


@jax.jit
def extraction(logged: LoggedMDP, policy_correction: jax.Array) -> Solution:
    """(a) w(s) = d_w(s) / d_D(s) with d_w = (1-γ) p_0 + γ T_* d_w, a linear system.

    `nu` is d_w(s). The correction must be a policy's: Σ_a w(a|s) π_D(a|s) = 1.
    """
    require_float64(logged.mdp.probabilities, policy_correction)
    mdp = logged.mdp
    visits = solve_flow(mdp, policy_correction * logged.behaviour, (1 - mdp.discount) * mdp.initial)
    inside = logged.state_distribution > 0
    state_correction = jnp.where(inside, visits / jnp.where(inside, logged.state_distribution, 1.0), 0.0)
    return _finish(logged, policy_correction, state_correction, visits, jnp.array(1))


@partial(jax.jit, static_argnames="divergence")
def extraction_dual(logged: LoggedMDP, policy_correction: jax.Array, divergence: Divergence = CHI2) -> Solution:
    """(b) min_μ (1-γ) E_{p_0}[μ(s_0)] + E_D[f*_0(E_{π_D}[w(a|s) e_μ(s,a)])]; w(s) = w(E_{π_D}[w(a|s) e_μ(s,a)])."""
    require_float64(logged.mdp.probabilities, policy_correction)

    def gradient(mu: jax.Array) -> jax.Array:
        return jax.grad(extraction_dual_loss)(mu, logged, policy_correction, divergence)

    return _solve_for_mu(logged, policy_correction, divergence, gradient)


@partial(jax.jit, static_argnames="divergence")
def extraction_a_mu(logged: LoggedMDP, policy_correction: jax.Array, divergence: Divergence = CHI2) -> Solution:
    """(c) A(s) by exact regression on u-loss, μ by steps along the gradient of mu-loss with that A held.

    mu-loss is linear in μ, so it has no minimum of its own: only its gradient, with A following, has a meaning
    (Proposition 5.1). The steps are those of `extraction_dual` with this gradient in place of the dual's.
    """
    require_float64(logged.mdp.probabilities, policy_correction)

    def gradient(mu: jax.Array) -> jax.Array:
        a = regress_a(logged, policy_correction, mu)
        return jax.grad(exact_mu_loss)(mu, a, logged, policy_correction, divergence)

    return _solve_for_mu(logged, policy_correction, divergence, gradient)


def extraction_dual_loss(
    mu: jax.Array, logged: LoggedMDP, policy_correction: jax.Array, divergence: Divergence
) -> jax.Array:
    """L_ext(μ) (label eq:extraction-0)."""
    inner = regress_a(logged, policy_correction, mu)
    mdp = logged.mdp
    return (1 - mdp.discount) * mdp.initial @ mu + logged.state_distribution @ divergence.conjugate(inner)


def regress_a(logged: LoggedMDP, policy_correction: jax.Array, mu: jax.Array) -> jax.Array:
    """The minimiser of u-loss: A(s) = E_{π_D}[w(a|s) (γ E[μ(s')] - μ(s))]."""
    e_mu = losses.flow_error(mu[:, None], expected_next(logged.mdp, mu), logged.mdp.discount)
    return (logged.behaviour * policy_correction * e_mu).sum(-1)


def exact_mu_loss(
    mu: jax.Array, a: jax.Array, logged: LoggedMDP, policy_correction: jax.Array, divergence: Divergence
) -> jax.Array:
    """mu-loss with its expectations over every transition of the model."""
    mdp = logged.mdp
    return losses.extraction_mu_loss(
        divergence,
        a=a[:, None, None],
        policy_correction=policy_correction[..., None],
        e_mu=losses.flow_error(mu[:, None, None], mu[mdp.successors], mdp.discount),
        mu_initial=mu,
        discount=mdp.discount,
        weights=logged.distribution[..., None] * mdp.probabilities,
        initial_weights=mdp.initial,
    )


def _solve_for_mu(
    logged: LoggedMDP,
    policy_correction: jax.Array,
    divergence: Divergence,
    gradient: Callable[[jax.Array], jax.Array],
) -> Solution:
    mdp = logged.mdp
    inside = logged.state_distribution > 0
    identity = jnp.eye(mdp.states)
    residual_matrix = mdp.discount * policy_matrix(mdp, policy_correction * logged.behaviour) - identity

    def field(mu: jax.Array) -> jax.Array:
        return jnp.where(inside, gradient(mu), 0.0)

    def hessian(mu: jax.Array) -> jax.Array:
        curve = logged.state_distribution * divergence.weight_prime(regress_a(logged, policy_correction, mu))
        matrix = residual_matrix.T @ (curve[:, None] * residual_matrix)
        return jnp.where(inside[:, None] & inside, matrix, identity)

    root = monotone_root(field, hessian, jnp.zeros(mdp.states), TOLERANCE / 10)
    state_correction = divergence.weight(regress_a(logged, policy_correction, root.x))
    return _finish(logged, policy_correction, state_correction, root.x, root.iterations)
