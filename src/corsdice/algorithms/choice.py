"""What ships of a run: the best policy by the estimates that λ moves on, of its second half.

The policy follows λ late, and where α is small it may jump though λ hardly moves: a run may end on either side of its
limit, while it has been just within it before. (BallRun, α = .03, limit 40: the last of two seeds cost 58 and 66, the
best of them 33 and 27.)
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from corsdice.algorithms.contract import Params

UNJUDGED = -3e38
"""Less than any merit."""


class Choice(NamedTuple):
    """A policy, the critics that it goes with, and what was thought of it."""

    actor: Params
    nu: Params
    q: Params
    """The one that ν was learned with."""
    safe: jax.Array
    """1 if it is within what is aimed at, else 0."""
    merit: jax.Array
    """Of a safe one its return, of another how little it costs."""


def unjudged(actor: Params, nu: Params, q: Params) -> Choice:
    return Choice(actor, nu, q, jnp.float32(0.0), jnp.float32(UNJUDGED))


def judge(policy: Choice, violation: jax.Array, returned: jax.Array, now: jax.Array) -> Choice:
    """With its merit, by the rule of `ope.preference`, if it is to be judged now."""
    safe = violation <= 0
    merit = jnp.where(safe, returned, -violation)
    return policy._replace(safe=(now & safe).astype(jnp.float32), merit=jnp.where(now, merit, UNJUDGED))


def better(so_far: Choice, latest: Choice) -> Choice:
    """The latest, unless it is worse; so nothing but the latest as long as none is judged."""
    worse = (latest.safe < so_far.safe) | ((latest.safe == so_far.safe) & (latest.merit < so_far.merit))
    return jax.tree.map(partial(jnp.where, worse), so_far, latest)
