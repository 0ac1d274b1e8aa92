"""The truth about a finite MDP by linear programming (HiGHS): the best return, with or without a cost limit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix, csr_matrix

from corsdice.errors import UserError
from corsdice.tabular.mdp import FiniteMDP


class Optimum(NamedTuple):
    policy: np.ndarray
    """[S, A], uniform in states that the optimum never visits."""
    occupancy: np.ndarray
    """[S, A] d(s,a)."""
    value: float
    """The normalised return E_d[r]."""
    cost: float
    """The normalised cost E_d[c]."""


def linear_program(mdp: FiniteMDP, limit: float | None = None, allowed: np.ndarray | None = None) -> Optimum:
    """max_d E_d[r] over the distributions d >= 0 that satisfy the flow and, with a limit, E_d[c] <= limit.

    `allowed` [S, A] keeps the optimum inside the support of the logs.
    """
    rewards, costs = np.asarray(mdp.rewards, np.float64), np.asarray(mdp.costs, np.float64)
    states, actions = rewards.shape
    pairs = np.arange(states * actions) if allowed is None else np.flatnonzero(allowed)
    result = linprog(
        -rewards.ravel()[pairs],
        A_ub=None if limit is None else costs.ravel()[None, pairs],
        b_ub=None if limit is None else [limit],
        A_eq=_flow_matrix(mdp)[pairs].T,
        b_eq=(1 - float(mdp.discount)) * np.asarray(mdp.initial),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if result.status == 2:
        raise UserError(f"no policy meets the cost limit {limit} (per step, normalised): raise the limit")
    if not result.success:
        raise RuntimeError(f"the linear program failed: {result.message}")
    visits = np.zeros((states, actions))
    visits.ravel()[pairs] = np.maximum(result.x, 0.0)
    mass = visits.sum(-1, keepdims=True)
    empty = mass < 1e-12
    policy = np.where(empty, 1 / actions, visits / np.where(empty, 1.0, mass))
    return Optimum(policy, visits, float((visits * rewards).sum()), float((visits * costs).sum()))


def _flow_matrix(mdp: FiniteMDP) -> csr_matrix:
    """[S A, S], sparse, with rows 1_s - γ T(·|s,a)."""
    successors = np.asarray(mdp.successors)
    states, actions, width = successors.shape
    pairs = np.arange(states * actions)
    following = -float(mdp.discount) * np.asarray(mdp.probabilities).ravel()
    return coo_matrix(
        (
            np.concatenate([np.ones(len(pairs)), following]),
            (
                np.concatenate([pairs, np.repeat(pairs, width)]),
                np.concatenate([pairs // actions, successors.ravel()]),
            ),
        ),
        shape=(len(pairs), states),
    ).tocsr()
