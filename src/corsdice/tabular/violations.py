"""How far a correction is from being a stationary or a policy correction: the L1 measures of section 6.1."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from corsdice.tabular.logs import LoggedMDP
from corsdice.tabular.mdp import inflow


@jax.jit
def flow_violation(logged: LoggedMDP, w: jax.Array) -> jax.Array:
    """Σ_s |(1-γ) p_0(s) + γ (T_* d_w)(s) - Σ_a d_w(s,a)| with d_w = w d_D: zero for a stationary correction."""
    mdp = logged.mdp
    visits = w * logged.distribution
    return jnp.abs((1 - mdp.discount) * mdp.initial + mdp.discount * inflow(mdp, visits) - visits.sum(-1)).sum()


@jax.jit
def policy_violation(logged: LoggedMDP, w: jax.Array) -> jax.Array:
    """Σ_s |Σ_a w(s,a) π_D(a|s) - 1| over the states of the logs: zero for a policy correction."""
    off = jnp.abs((w * logged.behaviour).sum(-1) - 1)
    return jnp.where(logged.state_distribution > 0, off, 0.0).sum()
