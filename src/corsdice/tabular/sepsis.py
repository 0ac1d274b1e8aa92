"""The intensive-care sepsis MDP of the `icu-sepsis` package: 716 states, 25 treatments, the clinicians' policy.

The package's data file is read where it is installed; its code (which wants an old `gym`) is never imported.
Choudhary, Gupta and Thomas, "ICU-Sepsis: A Benchmark MDP Built from Real Medical Data" (2024).
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from corsdice.errors import UserError
from corsdice.tabular.mdp import FiniteMDP, check_policy, from_dense

LEVELS = 5
"""Of each of the two treatments, fluids and vasopressors: an action is LEVELS x one level + the other."""

SURVIVAL = 714


class Sepsis(NamedTuple):
    mdp: FiniteMDP
    clinicians: jax.Array
    """[S, A] the policy estimated from the records; uniform in the terminal states, where none was recorded."""


def sepsis(discount: float = 0.95) -> Sepsis:
    """Reward 1 for survival; cost: the intensity of treatment, the mean of the two levels scaled to [0, 1].

    States 713 (death), 714 (survival) and 715 are terminal: every action leads to 715, free of cost. The reward is that
    of acting in 714, one step later than the package gives it: there it depends on the next state, and a model with
    estimated transitions would pay its expectation without the survival.
    """
    package = find_spec("icu_sepsis")
    if package is None or not package.submodule_search_locations:
        raise UserError("the sepsis MDP needs the package icu-sepsis: pip install 'corsdice[sepsis]'")
    path = Path(package.submodule_search_locations[0]) / "envs" / "assets" / "dynamics.npz"
    with np.load(path, allow_pickle=False) as file:
        transitions, initial, clinicians = (file[key] for key in ("tx_mat", "d_0", "expert_policy"))
    actions = clinicians.shape[1]
    level = np.arange(actions)
    intensity = (level // LEVELS + level % LEVELS) / (2 * (LEVELS - 1))
    terminal = transitions[:, :, -1].min(-1) == 1  # nothing but the last, absorbing state follows
    mdp = from_dense(
        transitions,
        rewards=np.broadcast_to((np.arange(len(initial)) == SURVIVAL)[:, None], clinicians.shape),
        costs=np.where(terminal[:, None], 0.0, intensity),
        initial=initial,
        discount=discount,
    )
    totals = clinicians.sum(-1, keepdims=True)
    policy = np.where(totals > 0, clinicians / np.where(totals > 0, totals, 1.0), 1 / actions)
    return Sepsis(mdp, check_policy(policy, mdp))
