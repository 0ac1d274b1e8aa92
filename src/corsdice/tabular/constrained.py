"""Constrained methods built on SemiDICE: the multiplier λ that brings an estimate of the cost to the limit.

CORSDICE and the naive method differ in the estimate alone: E_D[w(s) w(a|s) c] after extraction, or E_D[w(a|s) c].
(`coptidice` needs no search: λ is a variable of its convex program.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from corsdice.divergences import CHI2, Divergence
from corsdice.tabular.extraction import extraction
from corsdice.tabular.logs import LoggedMDP
from corsdice.tabular.precision import require_float64
from corsdice.tabular.semigradient import Scalar, semidice
from corsdice.tabular.solution import LARGEST, Solution, Status, multiplier_unit

TOLERANCE = 1e-9
"""How far below the limit the estimated cost may end where the constraint binds."""
MAX_ITERATIONS = 300


@partial(jax.jit, static_argnames="divergence")
def corsdice(logged: LoggedMDP, alpha: Scalar, limit: Scalar, divergence: Divergence = CHI2) -> Solution:
    """CORSDICE: λ by the extracted estimate of the cost (label modified-lambda-loss); w = w(s) w(a|s)."""

    def solve(lam: jax.Array, start: jax.Array) -> Solution:
        semi = semidice(logged, alpha, divergence, lam, start)
        extracted = extraction(logged, semi.w)
        status = jnp.maximum(semi.status, extracted.status)
        residual = jnp.maximum(semi.residual, extracted.residual)
        return extracted._replace(nu=semi.nu, lam=lam, residual=residual, iterations=semi.iterations, status=status)

    return _meet_limit(logged, solve, limit)


@partial(jax.jit, static_argnames="divergence")
def naive_semidice(logged: LoggedMDP, alpha: Scalar, limit: Scalar, divergence: Divergence = CHI2) -> Solution:
    """Constrained SemiDICE as first thought of (label pre-lambda-loss): w corrects the policy, so E_D[w c] is off."""
    return _meet_limit(logged, lambda lam, start: semidice(logged, alpha, divergence, lam, start), limit)


class _Search(NamedTuple):
    low: jax.Array  # too cheap a multiplier: the cost is above the limit
    high: jax.Array  # the cost is within the limit; infinite until such a multiplier is found
    over: jax.Array  # cost - limit at `low`, halved when that end stays (Illinois)
    under: jax.Array  # the same at `high`
    room: jax.Array  # limit - cost at `high`
    solution: Solution  # at `high`, or the last tried
    evaluations: jax.Array


def _meet_limit(logged: LoggedMDP, solve: Callable[[jax.Array, jax.Array], Solution], limit: Scalar) -> Solution:
    """The smallest-found λ >= 0 whose solution is estimated to cost at most `limit`, within TOLERANCE of it.

    0 if that is enough; else λ grows until the limit is met, and the bracket shrinks by regula falsi (Illinois), with
    a bisection every third time. The estimate is continuous in λ, so a root is found even were it not monotone.
    """
    require_float64(logged.mdp.probabilities, logged.behaviour)
    mdp = logged.mdp
    unit = multiplier_unit(mdp.rewards, mdp.costs)

    def excess(solution: Solution) -> jax.Array:
        return logged.estimate(solution.w, mdp.costs) - limit

    def unfinished(s: _Search) -> jax.Array:
        unmet = jnp.isinf(s.high) & (s.low < LARGEST * unit)
        loose = (s.high > 0) & jnp.isfinite(s.high) & (s.room > TOLERANCE) & (s.high - s.low > 1e-15 * s.high)
        return (unmet | loose) & (s.evaluations < MAX_ITERATIONS)

    def evaluate(s: _Search) -> _Search:
        growing = jnp.isinf(s.high)
        falsi = s.low + (s.high - s.low) * s.over / (s.over - s.under)
        middle = 0.5 * (s.low + s.high)
        inside = jnp.where((s.evaluations % 3 == 0) | (falsi <= s.low) | (falsi >= s.high), middle, falsi)
        lam = jnp.where(growing, jnp.maximum(4 * s.low, 0.01 * unit), inside)
        tried = solve(lam, s.solution.nu)
        value = excess(tried)
        met = value <= 0
        return _Search(
            low=jnp.where(met, s.low, lam),
            high=jnp.where(met, lam, s.high),
            over=jnp.where(met, jnp.where(growing, s.over, 0.5 * s.over), value),
            under=jnp.where(met, value, 0.5 * s.under),
            room=jnp.where(met, -value, s.room),
            solution=jax.tree.map(lambda new, old: jnp.where(met | growing, new, old), tried, s.solution),
            evaluations=s.evaluations + 1,
        )

    zero = jnp.array(0.0)
    free = solve(zero, jnp.zeros(mdp.states))
    value = excess(free)
    first = _Search(
        low=zero,
        high=jnp.where(value <= 0, 0.0, jnp.inf),
        over=value,
        under=-jnp.abs(value),
        room=-value,
        solution=free,
        evaluations=jnp.array(1),
    )
    end = jax.lax.while_loop(unfinished, evaluate, first)
    binding_room = jnp.where(end.high > 0, end.room, 0.0)
    status = jnp.where(binding_room <= TOLERANCE, end.solution.status, Status.ITERATION_LIMIT)
    return end.solution._replace(
        residual=jnp.maximum(end.solution.residual, binding_room),
        iterations=end.evaluations,
        status=jnp.where(jnp.isinf(end.high), Status.INFEASIBLE, status),
    )
