"""Fixed points ν = backup(r + γ E[ν(s')]): one Newton solver for every Bellman-like equation of the family.

A backup maps Q(s,·) to a value and to the slope ∂value/∂Q(s,·), which is a probability over actions. That makes the
fixed-point map a monotone γ-contraction, and Newton's method on it is policy iteration with the slope as the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from corsdice.divergences import Divergence
from corsdice.tabular.mdp import FiniteMDP, expected_next, solve_bellman
from corsdice.tabular.precision import require_float64
from corsdice.tabular.solution import how_it_ended

TOLERANCE = 1e-11
"""Of the Bellman residual, relative to the size of the values."""
MAX_ITERATIONS = 500


class Backup(NamedTuple):
    value: jax.Array
    """[S]"""
    slope: jax.Array
    """[S, A] ∂value(s)/∂Q(s,a): non-negative, each row sums to 1."""
    w: jax.Array
    """[S, A] the policy correction that the backup implies."""


class FixedPoint(NamedTuple):
    nu: jax.Array
    backup: Backup
    residual: jax.Array
    iterations: jax.Array
    status: jax.Array


def fixed_point(
    mdp: FiniteMDP, rewards: jax.Array, backup: Callable[[jax.Array], Backup], start: jax.Array | None = None
) -> FixedPoint:
    """Solves ν = backup(rewards + γ E[ν(s')]).

    Newton, safeguarded: a step that shrinks the residual less than plain iteration would (by γ) is undone and plain
    iteration takes its place, so convergence is never slower than a contraction's and quadratic near the solution.
    """
    require_float64(mdp.probabilities, rewards)

    def bellman(nu: jax.Array) -> tuple[Backup, jax.Array]:
        backed = backup(rewards + mdp.discount * expected_next(mdp, nu))
        return backed, jnp.abs(backed.value - nu).max()

    def scale(nu: jax.Array) -> jax.Array:
        return 1 + jnp.abs(nu).max()

    class Loop(NamedTuple):
        nu: jax.Array
        plain: jax.Array  # where plain iteration led from the point before
        bound: jax.Array  # the residual that plain iteration would reach at most
        backup: Backup
        residual: jax.Array
        iterations: jax.Array

    def unfinished(loop: Loop) -> jax.Array:
        return (loop.residual > TOLERANCE * scale(loop.nu)) & (loop.iterations < MAX_ITERATIONS)

    def step(loop: Loop) -> Loop:
        newton = loop.nu + solve_bellman(mdp, loop.backup.slope, loop.backup.value - loop.nu)
        accepted = loop.residual <= loop.bound
        nu = jnp.where(accepted, newton, loop.plain)
        backed, residual = bellman(nu)
        return Loop(
            nu=nu,
            plain=loop.backup.value,
            bound=jnp.where(accepted, mdp.discount * loop.residual, jnp.inf),
            backup=backed,
            residual=residual,
            iterations=loop.iterations + 1,
        )

    nu = jnp.zeros(mdp.states) if start is None else start
    backed, residual = bellman(nu)
    loop = jax.lax.while_loop(
        unfinished, step, Loop(nu, backed.value, jnp.array(jnp.inf), backed, residual, jnp.array(0))
    )
    relative = loop.residual / scale(loop.nu)
    return FixedPoint(loop.nu, loop.backup, relative, loop.iterations, how_it_ended(relative, TOLERANCE))


def greedy_backup(q: jax.Array) -> Backup:
    """value = max_a Q(s,a): the fixed point is V*, the slope an optimal policy, w its correction of the uniform one."""
    policy = jax.nn.one_hot(q.argmax(-1), q.shape[-1], dtype=q.dtype)
    return Backup(q.max(-1), policy, policy * q.shape[-1])


def regularised_backup(
    divergence: Divergence,
    behaviour: jax.Array,
    alpha: jax.Array | float,
    total: jax.Array | float = 1.0,
    exact_value: bool = False,
) -> Callable[[jax.Array], Backup]:
    """The backup of a behaviour-regularised method.

    U(s) solves Σ_a π_D(a|s) w((Q(s,a) - U(s)) / α) = total, the optimality condition of min_U of
    total U + α E_{π_D}[f*_0((Q-U)/α)]. The value is U, or with `exact_value` V = U + α E_{π_D}[f*_0((Q-U)/α)].
    """
    seen = behaviour > 0
    mass = jnp.where(seen, behaviour, 1.0)

    def excess(y: jax.Array) -> jax.Array:
        return (behaviour * divergence.weight(y)).sum(-1) - total

    def backup(q: jax.Array) -> Backup:
        best = jnp.where(seen, q, -jnp.inf).max(-1)
        gap = jnp.where(seen, (q - best[:, None]) / alpha, -1.0)
        u = _root(gap)
        y = gap - u[:, None]
        w = jnp.where(seen, divergence.weight(y), 0.0)
        value = best + alpha * u
        if exact_value:
            value = value + alpha * (behaviour * divergence.conjugate(y)).sum(-1)
            slope = behaviour * w
        else:
            slope = behaviour * divergence.weight_prime(y)
        return Backup(value, slope / slope.sum(-1, keepdims=True), w)

    def _root(gap: jax.Array) -> jax.Array:
        """The root u of excess(gap - u), by Newton from the left.

        w is convex and increasing for every divergence here, so Newton's method from a point left of the root climbs
        to it without overshooting. No action can carry more than all of the mass, π_D(a) w(a) <= total, which gives
        a start where the excess is already below A-1 totals: nothing overflows, however small α is.
        """
        u = jnp.where(seen, gap - divergence.f_prime(total / mass), -jnp.inf).max(-1)

        def unfinished(state: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
            _, step, iterations = state
            return (step > 0).any() & (iterations < 100)

        def climb(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
            u, _, iterations = state
            y = gap - u[:, None]
            target = u + excess(y) / (behaviour * divergence.weight_prime(y)).sum(-1)
            # The climb ends where rounding stops it from rising.
            return jnp.maximum(target, u), target - u, iterations + 1

        return jax.lax.while_loop(unfinished, climb, (u, jnp.full_like(u, jnp.inf), jnp.array(0)))[0]

    return backup


@jax.jit
def optimal_policy(mdp: FiniteMDP, rewards: jax.Array) -> jax.Array:
    """A deterministic policy [S, A] that maximises the return of `rewards`, by policy iteration."""
    return fixed_point(mdp, rewards, greedy_backup).backup.slope
