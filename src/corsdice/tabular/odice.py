"""ODICE: f-DVL's loss on single transitions, with the gradient through ν(s') made orthogonal to the one through ν(s).

In a table, ν(s) and ν(s') are different parameters unless s' = s. The backward gradient of a transition is therefore
already orthogonal to its forward gradient, and the projection removes exactly the self-loops. What remains is the
monotone field whose root is found here,

    (1-β) d_D(s) - β Σ_{s'} W(s,s') + β γ η Σ_{s̄ ≠ s} W(s̄,s),   W(s,s') = Σ_a d_D(s,a) T(s'|s,a) w(r + γν(s') - ν(s)).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from corsdice.divergences import CHI2, Divergence
from corsdice.tabular.logs import LoggedMDP
from corsdice.tabular.newton import monotone_root
from corsdice.tabular.precision import require_float64
from corsdice.tabular.semigradient import Scalar
from corsdice.tabular.solution import Solution, how_it_ended, policy_from

TOLERANCE = 1e-9


@partial(jax.jit, static_argnames="divergence")
def odice(logged: LoggedMDP, beta: Scalar, eta: Scalar = 1.0, divergence: Divergence = CHI2) -> Solution:
    """ODICE (label odice-1); w(s,a) is the mean over s' of the corrections of single transitions."""
    require_float64(logged.mdp.probabilities, logged.behaviour)
    mdp = logged.mdp
    transitions = logged.distribution[..., None] * mdp.probabilities
    rows = jnp.arange(mdp.states)[:, None, None]
    inside = logged.state_distribution > 0
    is_loop = jnp.eye(mdp.states, dtype=bool)

    def residuals(nu: jax.Array) -> jax.Array:
        """[S, A, K] e_ν(s,a,s') = r + γν(s') - ν(s)."""
        return mdp.rewards[..., None] + mdp.discount * nu[mdp.successors] - nu[:, None, None]

    def between_states(elementwise: Callable[[jax.Array], jax.Array], nu: jax.Array) -> jax.Array:
        """[S, S] Σ_a d_D(s,a) T(s'|s,a) elementwise(e_ν)."""
        amount = transitions * elementwise(residuals(nu))
        return jnp.zeros((mdp.states, mdp.states)).at[rows, mdp.successors].add(amount)

    def orthogonal_gradient(nu: jax.Array) -> jax.Array:
        flow = between_states(divergence.weight, nu)
        backward = jnp.where(is_loop, 0.0, flow).sum(0)
        gradient = (1 - beta) * logged.state_distribution - beta * flow.sum(1)
        return jnp.where(inside, gradient + beta * mdp.discount * eta * backward, 0.0)

    def jacobian(nu: jax.Array) -> jax.Array:
        curve = between_states(divergence.weight_prime, nu)
        loops, others = jnp.diag(curve), jnp.where(is_loop, 0.0, curve)
        own = others.sum(1) + (1 - mdp.discount) * loops + mdp.discount**2 * eta * others.sum(0)
        matrix = beta * (jnp.diag(own) - mdp.discount * (others + eta * others.T))
        return jnp.where(inside[:, None] & inside, matrix, jnp.eye(mdp.states))

    # From ν = 0 down by what makes every residual positive: all transitions start with weight.
    low = jnp.full(mdp.states, (mdp.rewards.min() - 1.0) / (1 - mdp.discount))
    root = monotone_root(orthogonal_gradient, jacobian, low, TOLERANCE)
    w = (mdp.probabilities * divergence.weight(residuals(root.x))).sum(-1)
    w = jnp.where(logged.distribution > 0, w, 0.0)
    return Solution(
        w=w,
        policy=policy_from(w, logged.behaviour),
        nu=root.x,
        lam=jnp.array(0.0),
        residual=root.residual,
        iterations=root.iterations,
        status=how_it_ended(root.residual, TOLERANCE),
    )
