"""The exact laboratory: finite MDPs, and every DICE method of the paper solved to machine precision on them."""

from corsdice.tabular.bellman import optimal_policy
from corsdice.tabular.constrained import corsdice, naive_semidice
from corsdice.tabular.extraction import extraction, extraction_a_mu, extraction_dual
from corsdice.tabular.logs import LoggedMDP, empirical_policy, logged, mle_model, simulate_counts
from corsdice.tabular.mdp import (
    FiniteMDP,
    check_policy,
    expected,
    from_dense,
    make_mdp,
    occupancy,
    uniform_policy,
)
from corsdice.tabular.odice import odice
from corsdice.tabular.optidice import coptidice, optidice
from corsdice.tabular.oracle import Optimum, linear_program
from corsdice.tabular.precision import float64
from corsdice.tabular.problems import four_rooms, mixed_behaviour, random_constrained_mdp, random_mdp
from corsdice.tabular.semigradient import behaviour_regularised, f_dvl, semidice, sql, xql
from corsdice.tabular.sepsis import sepsis
from corsdice.tabular.solution import Solution, Status
from corsdice.tabular.violations import flow_violation, policy_violation

__all__ = [
    "FiniteMDP",
    "LoggedMDP",
    "Optimum",
    "Solution",
    "Status",
    "behaviour_regularised",
    "check_policy",
    "coptidice",
    "corsdice",
    "empirical_policy",
    "expected",
    "extraction",
    "extraction_a_mu",
    "extraction_dual",
    "f_dvl",
    "float64",
    "flow_violation",
    "four_rooms",
    "from_dense",
    "linear_program",
    "logged",
    "make_mdp",
    "mixed_behaviour",
    "mle_model",
    "naive_semidice",
    "occupancy",
    "odice",
    "optidice",
    "optimal_policy",
    "policy_violation",
    "random_constrained_mdp",
    "random_mdp",
    "semidice",
    "sepsis",
    "simulate_counts",
    "sql",
    "uniform_policy",
    "xql",
]
