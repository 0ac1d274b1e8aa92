from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from corsdice import tabular
from corsdice.errors import UserError
from corsdice.tabular.problems import FOUR_ROOMS


def valid(mdp):
    """Passes the mdp through the checks that its constructor skips."""
    parts = {name: np.asarray(getattr(mdp, name)) for name in mdp.__dataclass_fields__}
    return tabular.make_mdp(**parts | {"discount": float(mdp.discount)})


def test_the_random_mdp_follows_the_paper():
    mdp = valid(tabular.random_mdp(jax.random.key(0)))
    assert mdp.successors.shape == (30, 4, 4)
    assert all(len(set(row)) == 4 for row in np.asarray(mdp.successors).reshape(-1, 4).tolist())
    assert mdp.initial[0] == 1
    (goal,) = np.flatnonzero(np.asarray(mdp.rewards).all(-1))
    assert mdp.rewards.sum() == 4

    def best(goal):
        rewards = jnp.zeros((30, 4)).at[goal].set(1.0)
        return tabular.linear_program(replace(mdp, rewards=rewards)).value

    assert goal == np.argmin([best(candidate) for candidate in range(30)])


def test_the_goal_can_end_the_episode():
    mdp = valid(tabular.random_mdp(jax.random.key(0), 10, goal_ends=True))
    assert mdp.states == 11
    goal = int(np.asarray(mdp.rewards).sum(-1).argmax())
    assert (mdp.successors[goal] == 10).all()
    assert (mdp.successors[10] == 10).all()
    assert mdp.rewards[10].sum() == 0
    best = tabular.optimal_policy(mdp, mdp.rewards)
    assert tabular.expected(mdp, best, mdp.rewards) <= (1 - mdp.discount)  # a reward of 1, once


def test_the_behaviour_policy_is_half_optimal():
    mdp = tabular.random_mdp(jax.random.key(0))
    np.testing.assert_allclose(np.sort(tabular.mixed_behaviour(mdp)), [[0.125, 0.125, 0.125, 0.625]] * 30)


def test_the_constrained_mdp_binds_and_has_a_free_action():
    for seed in range(5):
        problem = tabular.random_constrained_mdp(jax.random.key(seed), 0.3)
        mdp = valid(problem.mdp)
        assert problem.unconstrained_cost > 0.3
        assert (mdp.costs.min(-1) == 0).all()
        assert tabular.linear_program(mdp, 0.3).value < tabular.linear_program(mdp).value
        assert tabular.linear_program(mdp, 0.0).cost == pytest.approx(0, abs=1e-9)


def test_four_rooms_are_connected_and_walled():
    rooms = tabular.four_rooms(slip=0.2)
    valid(rooms.mdp)
    assert len(rooms.cells) == 104
    assert all(FOUR_ROOMS[row][column] == " " for row, column in rooms.cells)
    assert (tabular.occupancy(rooms.mdp, tabular.uniform_policy(rooms.mdp)).sum(-1) > 0).all()
    start = rooms.mdp.successors[rooms.start], rooms.mdp.probabilities[rooms.start]
    assert float(jnp.where(start[0][0] == rooms.start, start[1][0], 0).sum()) == pytest.approx(0.8 + 2 * 0.05)


def test_sepsis_reproduces_the_published_baselines():
    """Survival: clinicians .78, random .78, optimal .88 (README of the package), with a discount next to 1."""
    mdp, clinicians = tabular.sepsis(discount=0.99999)
    policies = (clinicians, tabular.uniform_policy(mdp), tabular.optimal_policy(mdp, mdp.rewards))
    survival = [float(tabular.expected(mdp, policy, mdp.rewards)) / (1 - 0.99999) for policy in policies]
    np.testing.assert_allclose(survival, [0.78, 0.78, 0.88], atol=0.006)
    assert mdp.costs.max() == 1
    assert (mdp.costs[713:] == 0).all()


def test_sepsis_is_solved():
    mdp, clinicians = tabular.sepsis()
    logs = tabular.logged(mdp, clinicians)
    solution = tabular.corsdice(logs, 0.001, 0.03)
    assert solution.status == tabular.Status.CONVERGED
    assert tabular.expected(mdp, solution.policy, mdp.costs) == pytest.approx(0.03, abs=1e-6)
    assert tabular.expected(mdp, solution.policy, mdp.rewards) > tabular.expected(mdp, clinicians, mdp.rewards)


def test_sepsis_names_the_extra_that_is_missing(monkeypatch):
    monkeypatch.setitem(tabular.sepsis.__globals__, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"pip install 'corsdice\[sepsis\]'"):
        tabular.sepsis()
