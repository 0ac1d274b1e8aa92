"""OptiDICE and COptiDICE, exactly: a primal-dual interior-point method for their convex programs.

    max_{w >= 0}  E_D[w r] - α E_D[f(w)]
    s.t.          Σ_a w d_D(s,a) = (1-γ) p_0(s) + γ (T_* w d_D)(s)   for every s    (multiplier ν)
                  E_D[w c] <= limit                                               (multiplier λ)

With z >= 0 for w >= 0 and u >= 0 for the room under the limit, the optimality conditions are

    r - λc + γ E[ν(s')] - ν(s) - α f'(w) + z = 0,    w z = 0,    λ u = 0,

and each iteration is one Newton step on them with the products held at a shrinking τ instead of 0 (Mehrotra's
predictor-corrector). The first point, w = 1, satisfies the flow because d_D does; from there the flow is linear and
stays satisfied, whatever α is. The Newton matrix is dense [S, S]: meant for up to a few thousand states.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from corsdice import linear
from corsdice.divergences import CHI2, Divergence
from corsdice.tabular.logs import LoggedMDP
from corsdice.tabular.mdp import FiniteMDP
from corsdice.tabular.precision import require_float64
from corsdice.tabular.semigradient import Scalar
from corsdice.tabular.solution import LARGEST, Solution, Status, how_it_ended, multiplier_unit, policy_from, spread

TOLERANCE = 1e-12
"""Of the optimality condition that is violated most, those in units of reward relative to the range of the rewards."""
MAX_ITERATIONS = 200


@partial(jax.jit, static_argnames="divergence")
def optidice(logged: LoggedMDP, alpha: Scalar, divergence: Divergence = CHI2) -> Solution:
    """OptiDICE (label eq:OptiDICE-whole): w is the stationary correction of the regularised optimum."""
    return _interior_point(logged, alpha, divergence, jnp.zeros_like(logged.mdp.costs), 1.0)


@partial(jax.jit, static_argnames="divergence")
def coptidice(logged: LoggedMDP, alpha: Scalar, limit: Scalar, divergence: Divergence = CHI2) -> Solution:
    """COptiDICE: OptiDICE under E_D[w c] <= limit (label eq:cost_constraint), the limit per step and normalised."""
    return _interior_point(logged, alpha, divergence, logged.mdp.costs, limit)


class _Point(NamedTuple):
    w: jax.Array  # [S A]
    z: jax.Array  # [S A]
    multipliers: jax.Array  # [S + 1] ν and λ
    u: jax.Array  # []
    iterations: jax.Array


class _Residuals(NamedTuple):
    stationarity: jax.Array  # [S A]
    constraints: jax.Array  # [S + 1]
    gap: jax.Array  # [] E_D[w z] + λ u


def _interior_point(
    logged: LoggedMDP, alpha: Scalar, divergence: Divergence, costs: jax.Array, limit: Scalar
) -> Solution:
    require_float64(logged.mdp.probabilities, logged.behaviour)
    mdp = logged.mdp
    shape = costs.shape
    weight = logged.distribution.ravel()
    seen = weight > 0
    reward, cost = mdp.rewards.ravel(), costs.ravel()
    matrix = jnp.concatenate([_flow_matrix(mdp), cost[:, None]], axis=1)  # [S A, S + 1]: what ν and λ multiply
    target = jnp.append((1 - mdp.discount) * mdp.initial, limit)
    idle = jnp.append(logged.state_distribution == 0, False)  # ν(s) of a state outside the logs is free: keep it
    is_cost = jnp.append(jnp.zeros(mdp.states), 1.0)
    unit = multiplier_unit(reward, cost)
    reward_unit = spread(reward)
    f_second = jax.vmap(jax.grad(divergence.f_prime))

    def residuals(p: _Point) -> _Residuals:
        slope = reward - matrix @ p.multipliers - alpha * divergence.f_prime(p.w) + p.z
        held = target - matrix.T @ (weight * p.w) - is_cost * p.u
        gap = (weight * p.w * p.z).sum() + p.multipliers[-1] * p.u
        return _Residuals(jnp.where(seen, slope, 0.0), jnp.where(idle, 0.0, held), gap)

    def worst(r: _Residuals) -> jax.Array:
        rewards = jnp.maximum(jnp.abs(r.stationarity).max(), r.gap) / reward_unit
        return jnp.maximum(rewards, jnp.abs(r.constraints).sum())

    def step(p: _Point) -> _Point:
        r = residuals(p)
        lam = p.multipliers[-1]
        curvature = alpha * f_second(p.w) + p.z / p.w
        scaled = jnp.where(seen, weight / curvature, 0.0)
        newton = matrix.T @ (scaled[:, None] * matrix) + jnp.diag(idle + is_cost * p.u / lam)
        solve = _equilibrated_solver(newton)

        def direction(tau_w: jax.Array, tau_u: jax.Array) -> tuple[jax.Array, ...]:
            """The Newton step that makes the products w z and λ u equal, to first order, tau_w and tau_u."""
            pull = r.stationarity + tau_w / p.w - p.z
            room = (tau_u - lam * p.u) / lam
            dm = solve(matrix.T @ (scaled * pull) - r.constraints + is_cost * room)
            dw = jnp.where(seen, (pull - matrix @ dm) / curvature, 0.0)
            dz = jnp.where(seen, (tau_w - p.z * dw) / p.w - p.z, 0.0)
            return dw, dz, dm, room - p.u * dm[-1] / lam

        def longest(dw: jax.Array, dz: jax.Array, dm: jax.Array, du: jax.Array) -> jax.Array:
            """The step that just keeps w, z, λ and u positive."""

            def reach(x: jax.Array, dx: jax.Array) -> jax.Array:
                return jnp.where(dx < 0, -x / jnp.where(dx < 0, dx, -1.0), jnp.inf).min()

            steps = (reach(p.w, dw), reach(p.z, dz), reach(lam, dm[-1]), reach(p.u, du))
            return jnp.minimum(1.0, jnp.stack(steps).min())

        affine = direction(jnp.zeros_like(p.w), jnp.array(0.0))
        length = longest(*affine)
        dw, dz, dm, du = affine
        tau = r.gap / 2  # the weights sum to 1, and u λ counts as one more product
        after = (weight * (p.w + length * dw) * (p.z + length * dz)).sum()
        after += (lam + length * dm[-1]) * (p.u + length * du)
        centred = tau * (after / r.gap) ** 3
        corrected = direction(centred - dw * dz, centred - dm[-1] * du)
        length = jnp.minimum(1.0, 0.995 * longest(*corrected))
        dw, dz, dm, du = corrected
        w, z, multipliers = p.w + length * dw, p.z + length * dz, p.multipliers + length * dm
        # A step is blind to the curvature of f'; where z is large enough to absorb what it missed, let it.
        absorbed = alpha * divergence.f_prime(w) + matrix @ multipliers - reward
        z = jnp.where((absorbed > 0.1 * z) & (absorbed < 10 * z), absorbed, z)
        return _Point(w, z, multipliers, p.u + length * du, p.iterations + 1)

    def unfinished(p: _Point) -> jax.Array:
        possible = p.multipliers[-1] < LARGEST * unit
        return (worst(residuals(p)) > TOLERANCE) & possible & (p.iterations < MAX_ITERATIONS)

    start = _Point(
        w=jnp.ones_like(weight),
        z=jnp.full_like(weight, reward_unit),
        multipliers=unit * is_cost,
        u=jnp.maximum(limit - (weight * cost).sum(), 0.1 * jnp.maximum(limit, 1e-3)),
        iterations=jnp.array(0),
    )
    end = jax.lax.while_loop(unfinished, step, start)
    w = jnp.where(seen, end.w, 0.0).reshape(shape)
    residual = worst(residuals(end))
    return Solution(
        w=w,
        policy=policy_from(w, logged.behaviour),
        nu=end.multipliers[:-1],
        lam=end.multipliers[-1],
        residual=residual,
        iterations=end.iterations,
        status=jnp.where(end.multipliers[-1] < LARGEST * unit, how_it_ended(residual, TOLERANCE), Status.INFEASIBLE),
    )


def _flow_matrix(mdp: FiniteMDP) -> jax.Array:
    """[S A, S] with rows 1_s - γ T(·|s,a): its product with ν is ν(s) - γ E[ν(s')]."""
    rows = jnp.arange(mdp.states * mdp.actions)
    successors = mdp.successors.reshape(len(rows), -1)
    leaving = jnp.repeat(jnp.eye(mdp.states), mdp.actions, axis=0)
    return leaving.at[rows[:, None], successors].add(-mdp.discount * mdp.probabilities.reshape(successors.shape))


def _equilibrated_solver(matrix: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """Solves with a positive semi-definite matrix whose rows differ by many orders of magnitude."""
    scale = 1 / jnp.sqrt(jnp.diag(matrix))
    even = scale[:, None] * matrix * scale
    factor = linear.cholesky(even + 1e-13 * jnp.eye(len(matrix)))

    def solve(right: jax.Array) -> jax.Array:
        x = linear.cholesky_solve(factor, scale * right)
        return scale * (x + linear.cholesky_solve(factor, scale * right - even @ x))  # refined once

    return solve
