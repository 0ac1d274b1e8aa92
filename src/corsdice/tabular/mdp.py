"""Finite constrained MDPs with sparse successors, and the linear algebra of a policy in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from corsdice import linear
from corsdice.errors import UserError
from corsdice.tabular.precision import require_float64

DENSE_STATES = 1_000
"""Up to this many states a linear system is factorised; beyond, a Krylov method needs less time and far less memory."""

_ROW_SUM_TOLERANCE = 1e-8


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FiniteMDP:
    """A finite MDP with S states, A actions and at most K successors of each pair, as a pytree.

    An episode that ends is a transition to an absorbing state (a self-loop without reward or cost); a time limit of
    the logs is no part of the MDP. Leading axes, from `vmap`, make a batch of MDPs. `make_mdp` and `from_dense` check
    what they are given; this constructor does not.
    """

    successors: jax.Array
    """[S, A, K] the states that may follow; an index may repeat, its probabilities add up."""
    probabilities: jax.Array
    """[S, A, K] T(s'|s,a); unused places hold probability 0."""
    rewards: jax.Array
    """[S, A] r(s,a)."""
    costs: jax.Array
    """[S, A] c(s,a)."""
    initial: jax.Array
    """[S] p_0(s)."""
    discount: jax.Array
    """[] γ."""

    @property
    def states(self) -> int:
        return self.successors.shape[-3]

    @property
    def actions(self) -> int:
        return self.successors.shape[-2]


def make_mdp(
    *,
    successors: ArrayLike,
    probabilities: ArrayLike,
    rewards: ArrayLike,
    initial: ArrayLike,
    discount: float,
    costs: ArrayLike | None = None,
) -> FiniteMDP:
    """Checks the parts of an MDP and puts them together; costs default to zero.

    >>> from corsdice.tabular import float64
    >>> with float64():
    ...     make_mdp(successors=[[[0]]], probabilities=[[[0.9]]], rewards=[[1.0]], initial=[1.0], discount=0.9)
    Traceback (most recent call last):
      ...
    corsdice.errors.UserError: probabilities of state 0, action 0 sum to 0.9: each row must sum to 1
    """
    require_float64()
    successors = np.asarray(successors)
    if successors.ndim != 3 or not np.issubdtype(successors.dtype, np.integer):
        raise UserError(f"successors must be integers of shape [S, A, K], got {successors.dtype} {successors.shape}")
    states, actions, _ = successors.shape
    if successors.size and not (successors.min() >= 0 and successors.max() < states):
        raise UserError(f"successors must be states 0 to {states - 1}, got {successors.min()} to {successors.max()}")
    parts = {
        "probabilities": (probabilities, successors.shape),
        "rewards": (rewards, (states, actions)),
        "costs": (np.zeros((states, actions)) if costs is None else costs, (states, actions)),
        "initial": (initial, (states,)),
        "discount": (discount, ()),
    }
    arrays = {}
    for name, (value, shape) in parts.items():
        array = np.asarray(value, dtype=np.float64)
        if array.shape != shape:
            raise UserError(f"{name} has shape {array.shape}: it must be {shape} to match the successors")
        if not np.isfinite(array).all():
            raise UserError(f"{name}{_first(~np.isfinite(array))} is not a finite number")
        arrays[name] = array
    for name in ("probabilities", "initial"):
        if (arrays[name] < 0).any():
            raise UserError(f"{name}{_first(arrays[name] < 0)} is negative: probabilities must be >= 0")
    if not 0 <= arrays["discount"] < 1:
        raise UserError(f"the discount is {discount}: it must be in [0, 1)")
    sums = arrays["probabilities"].sum(-1)
    wrong = np.abs(sums - 1) > _ROW_SUM_TOLERANCE
    if wrong.any():
        state, action = np.argwhere(wrong)[0]
        total = sums[state, action]
        raise UserError(f"probabilities of state {state}, action {action} sum to {total:.6g}: each row must sum to 1")
    if abs(arrays["initial"].sum() - 1) > _ROW_SUM_TOLERANCE:
        raise UserError(f"initial sums to {arrays['initial'].sum():.6g}: it must sum to 1")
    return FiniteMDP(jnp.asarray(successors, jnp.int32), **{name: jnp.asarray(a) for name, a in arrays.items()})


def _first(wrong: np.ndarray) -> str:
    """The place of the first wrong entry, as `[s, a]`; empty for a scalar."""
    return str([int(i) for i in np.argwhere(wrong)[0]]) if wrong.ndim else ""


def from_dense(
    transitions: ArrayLike,
    *,
    rewards: ArrayLike,
    initial: ArrayLike,
    discount: float,
    costs: ArrayLike | None = None,
) -> FiniteMDP:
    """An MDP from a dense T [S, A, S]: keeps, of each row, as many successors as the fullest row has."""
    dense = np.asarray(transitions, dtype=np.float64)
    if dense.ndim != 3 or dense.shape[0] != dense.shape[2]:
        raise UserError(f"transitions must have shape [S, A, S], got {dense.shape}")
    width = max(int((dense != 0).sum(-1).max()), 1)
    successors = np.argsort(dense == 0, axis=-1, kind="stable")[..., :width]
    return make_mdp(
        successors=successors,
        probabilities=np.take_along_axis(dense, successors, axis=-1),
        rewards=rewards,
        costs=costs,
        initial=initial,
        discount=discount,
    )


def check_policy(policy: ArrayLike, mdp: FiniteMDP) -> jax.Array:
    """The policy π(a|s) [S, A] as an array, after checking it."""
    require_float64()
    array = np.asarray(policy, dtype=np.float64)
    shape = (mdp.states, mdp.actions)
    if array.shape != shape:
        raise UserError(f"the policy has shape {array.shape}: the MDP needs {shape}")
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise UserError("the policy holds a negative or non-finite probability")
    wrong = np.abs(array.sum(-1) - 1) > _ROW_SUM_TOLERANCE
    if wrong.any():
        raise UserError(f"the policy's probabilities in state {int(wrong.argmax())} do not sum to 1")
    return jnp.asarray(array)


def uniform_policy(mdp: FiniteMDP) -> jax.Array:
    return jnp.full((mdp.states, mdp.actions), 1 / mdp.actions)


def expected_next(mdp: FiniteMDP, values: jax.Array) -> jax.Array:
    """Σ_s' T(s'|s,a) v(s') [S, A]."""
    return (mdp.probabilities * values[mdp.successors]).sum(-1)


def inflow(mdp: FiniteMDP, visits: jax.Array) -> jax.Array:
    """(T_* d)(s) = Σ_{s̄,ā} T(s|s̄,ā) d(s̄,ā) [S], the transpose of `expected_next`."""
    return jnp.zeros(mdp.states).at[mdp.successors].add(visits[..., None] * mdp.probabilities)


def policy_matrix(mdp: FiniteMDP, policy: jax.Array) -> jax.Array:
    """P_π(s'|s) as a dense [S, S] matrix."""
    rows = jnp.arange(mdp.states)[:, None, None]
    weights = policy[..., None] * mdp.probabilities
    return jnp.zeros((mdp.states, mdp.states)).at[rows, mdp.successors].add(weights)


def solve_bellman(mdp: FiniteMDP, policy: jax.Array, right: jax.Array) -> jax.Array:
    """x = (I - γ P_π)^-1 b."""
    if mdp.states <= DENSE_STATES:
        return linear.solve(jnp.eye(mdp.states) - mdp.discount * policy_matrix(mdp, policy), right)
    return _krylov(lambda x: x - mdp.discount * (policy * expected_next(mdp, x)).sum(-1), right)


def solve_flow(mdp: FiniteMDP, policy: jax.Array, right: jax.Array) -> jax.Array:
    """x = (I - γ P_π^T)^-1 b."""
    if mdp.states <= DENSE_STATES:
        return linear.solve(jnp.eye(mdp.states) - mdp.discount * policy_matrix(mdp, policy).T, right)
    return _krylov(lambda x: x - mdp.discount * inflow(mdp, policy * x[:, None]), right)


def _krylov(matvec: Callable[[jax.Array], jax.Array], right: jax.Array) -> jax.Array:
    """GMRES. (BiCGSTAB breaks down on the flow from a single initial state: its first two residuals are orthogonal.)"""
    options = {"tol": 1e-13, "restart": 40, "maxiter": 50, "solve_method": "incremental"}
    solution: jax.Array = jax.scipy.sparse.linalg.gmres(matvec, right, **options)[0]
    return solution


@jax.jit
def occupancy(mdp: FiniteMDP, policy: jax.Array) -> jax.Array:
    """The stationary distribution d_π(s,a) [S, A]: d = π (1-γ) p_0 + π γ T_* d."""
    require_float64(mdp.probabilities, policy)
    return policy * solve_flow(mdp, policy, (1 - mdp.discount) * mdp.initial)[:, None]


@jax.jit
def expected(mdp: FiniteMDP, policy: jax.Array, quantity: jax.Array) -> jax.Array:
    """ρ(π) = E_{d_π}[quantity], normalised per step; pass `mdp.rewards` for the return, `mdp.costs` for the cost."""
    return (occupancy(mdp, policy) * quantity).sum()
