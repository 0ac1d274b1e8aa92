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


class Sepsis(NamedTuple):
    mdp: FiniteMDP
    clinicians: jax.Array
    """[S, A] the policy estimated from the records; uniform in the terminal states, where none was recorded."""


def sepsis(discount: float = 0.95) -> Sepsis:
    """Reward 1 for survival; cost: the intensity of treatment, the mean of the two levels scaled to [0, 1].

    States 713 (death), 714 (survival) and 715 are terminal: every action leads to 715, free of reward and cost.
    """
    package = find_spec("icu_sepsis")
    if package is None or not package.submodule_search_locations:
        raise UserError("the sepsis MDP needs the package icu-sepsis: pip install 'corsdice[sepsis]'")
    path = Path(package.submodule_search_locations[0]) / "envs" / "assets" / "dynamics.npz"
    with np.load(path, allow_pickle=False) as file:
        transitions, rewards, initial, clinicians = (file[k] for k in ("tx_mat", "r_mat", "d_0", "expert_policy"))
    states, actions = clinicians.shape
    recorded = clinicians.sum(-1) > 0
    level = np.arange(actions)
    intensity = (level // LEVELS + level % LEVELS) / (2 * (LEVELS - 1))
    terminal = transitions[:, :, -1].min(-1) == 1  # nothing but the last, absorbing state follows
    mdp = from_dense(
        transitions,
        rewards=(transitions * rewards).sum(-1),
        costs=np.where(terminal[:, None], 0.0, intensity),
        initial=initial,
        discount=discount,
    )
    policy = np.where(recorded[:, None], clinicians / clinicians.sum(-1, keepdims=True, where=clinicians > 0, initial=1e-300), 1 / actions)
    return Sepsis(mdp, check_policy(policy, mdp))
