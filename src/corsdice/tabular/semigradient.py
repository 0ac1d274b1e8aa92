"""Methods whose solution is a policy correction: SemiDICE, f-DVL, SQL, XQL, and the exact regularised optimum.

All are one fixed point, ν = backup(r + γ E[ν(s')]) with Σ_a π_D(a|s) w((Q-ν)/α) = total:

| method   | divergence | scale | total   | value |
|----------|------------|-------|---------|-------|
| SemiDICE | any        | α     | 1       | U     |
| f-DVL    | any        | 1     | (1-β)/β | U     |
| SQL      | χ²         | 2α    | 1       | U     |
| XQL      | KL         | α     | 1       | U = V |
| exact    | any        | α     | 1       | V     |
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from corsdice.divergences import CHI2, KL, Divergence
from corsdice.tabular.bellman import fixed_point, regularised_backup
from corsdice.tabular.logs import LoggedMDP
from corsdice.tabular.solution import Solution, policy_from

Scalar = jax.Array | float


def _policy_correction(
    logged: LoggedMDP,
    divergence: Divergence,
    alpha: Scalar,
    total: Scalar = 1.0,
    exact_value: bool = False,
    lam: Scalar = 0.0,
    start: jax.Array | None = None,
) -> Solution:
    backup = regularised_backup(divergence, logged.behaviour, alpha, total, exact_value)
    point = fixed_point(logged.mdp, logged.mdp.rewards - lam * logged.mdp.costs, backup, start)
    w = point.backup.w
    policy = policy_from(w, logged.behaviour)
    return Solution(w, policy, point.nu, jnp.asarray(lam), point.residual, point.iterations, point.status)


@partial(jax.jit, static_argnames="divergence")
def semidice(
    logged: LoggedMDP,
    alpha: Scalar,
    divergence: Divergence = CHI2,
    lam: Scalar = 0.0,
    start: jax.Array | None = None,
) -> Solution:
    """SemiDICE (labels nu-loss, Q-loss) on the reward r - λc; `start` warms ν up."""
    return _policy_correction(logged, divergence, alpha, lam=lam, start=start)


@partial(jax.jit, static_argnames="divergence")
def f_dvl(logged: LoggedMDP, beta: Scalar, divergence: Divergence = CHI2) -> Solution:
    """f-DVL (label appendix:fdvl): min_ν (1-β) ν + β f*_0(Q-ν), so that Σ_a w π_D = (1-β)/β."""
    return _policy_correction(logged, divergence, 1.0, total=(1 - beta) / beta)


@jax.jit
def sql(logged: LoggedMDP, alpha: Scalar) -> Solution:
    """SQL (appendix C): w = max(0, 1 + (Q-V)/2α) with Σ_a w π_D = 1, which is SemiDICE with χ² at twice the α."""
    return _policy_correction(logged, CHI2, 2 * alpha)


@jax.jit
def xql(logged: LoggedMDP, alpha: Scalar) -> Solution:
    """XQL (label appendix-c-XQL): w = exp((Q-V)/α), V = α log E_{π_D}[exp(Q/α)], finite at every α > 0."""
    return _policy_correction(logged, KL, alpha)


@partial(jax.jit, static_argnames="divergence")
def behaviour_regularised(
    logged: LoggedMDP, alpha: Scalar, divergence: Divergence = CHI2, lam: Scalar = 0.0
) -> Solution:
    """The exact optimum of the behaviour-regularised MDP (Proposition 4.2); ν is V*."""
    return _policy_correction(logged, divergence, alpha, exact_value=True, lam=lam)
