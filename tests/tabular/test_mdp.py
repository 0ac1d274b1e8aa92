import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import make_logs

from corsdice import tabular
from corsdice.errors import UserError
from corsdice.tabular import mdp as mdp_module

GOOD = {
    "successors": np.zeros((2, 1, 2), int),
    "probabilities": np.full((2, 1, 2), 0.5),
    "rewards": np.zeros((2, 1)),
    "costs": np.zeros((2, 1)),
    "initial": np.array([1.0, 0.0]),
    "discount": 0.9,
}


def changed(name, value):
    return GOOD | {name: value}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (changed("probabilities", np.full((2, 1, 2), 0.4)), "state 0, action 0 sum to 0.8"),
        (changed("probabilities", np.array([[[0.5, 0.5]], [[1.5, -0.5]]])), r"probabilities\[1, 0, 1\] is negative"),
        (changed("rewards", np.array([[0.0], [np.nan]])), r"rewards\[1, 0\] is not a finite"),
        (changed("costs", np.array([[np.inf], [0.0]])), r"costs\[0, 0\] is not a finite"),
        (changed("rewards", np.zeros((2, 2))), r"rewards has shape \(2, 2\)"),
        (changed("initial", np.array([0.5, 0.4])), "initial sums to 0.9"),
        (changed("discount", 1.0), "discount is 1.0"),
        (changed("discount", float("nan")), "discount is not a finite"),
        (changed("successors", np.full((2, 1, 2), 2)), "states 0 to 1"),
        (changed("successors", np.zeros((2, 1, 2))), "must be integers"),
    ],
)
def test_validation_says_what_is_wrong(parts, message):
    with pytest.raises(UserError, match=message):
        tabular.make_mdp(**parts)


def test_the_solvers_refuse_float32():
    _, logs = make_logs()
    with jax.enable_x64(False), pytest.raises(UserError, match="float64"):
        tabular.make_mdp(**GOOD)
    with jax.enable_x64(False), pytest.raises(UserError, match="float64"):
        tabular.semidice(jax.tree.map(lambda x: jnp.asarray(np.asarray(x, np.float32)), logs), 0.1)


def test_policies_are_checked(line):
    for policy, message in (
        (np.ones((3, 1)), "shape"),
        (np.full((3, 2), 0.4), "sum to 1"),
        (np.array([[1.5, -0.5]] * 3), "negative"),
    ):
        with pytest.raises(UserError, match=message):
            tabular.check_policy(policy, line)


def test_occupancy_of_a_line_is_known_by_heart(line):
    policy = jnp.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    np.testing.assert_allclose(tabular.occupancy(line, policy).sum(-1), [0.5, 0.25, 0.25], atol=1e-15)
    assert tabular.expected(line, policy, line.rewards) == pytest.approx(0.25 * 4)
    assert tabular.expected(line, policy, line.costs) == pytest.approx(0.75)


def test_dense_and_sparse_say_the_same(line):
    dense = np.zeros((3, 2, 3))
    for (state, action, place), successor in np.ndenumerate(np.asarray(line.successors)):
        dense[state, action, successor] += line.probabilities[state, action, place]
    parts = {"rewards": line.rewards, "costs": line.costs, "initial": line.initial, "discount": 0.5}
    again = tabular.from_dense(dense, **parts)
    policy = tabular.uniform_policy(line)
    np.testing.assert_allclose(tabular.occupancy(again, policy), tabular.occupancy(line, policy), atol=1e-15)


def test_beyond_the_dense_limit_the_krylov_solver_agrees_with_numpy():
    states = mdp_module.DENSE_STATES + 200
    generator = np.random.default_rng(0)
    mdp = tabular.make_mdp(
        successors=generator.integers(0, states, (states, 2, 3)),
        probabilities=generator.dirichlet(np.ones(3), (states, 2)),
        rewards=generator.normal(size=(states, 2)),
        initial=np.r_[1.0, np.zeros(states - 1)],
        discount=0.99,
    )
    policy = tabular.uniform_policy(mdp)
    matrix = np.eye(states) - 0.99 * np.asarray(mdp_module.policy_matrix(mdp, policy))
    visits = np.linalg.solve(matrix.T, 0.01 * np.asarray(mdp.initial))
    np.testing.assert_allclose(tabular.occupancy(mdp, policy).sum(-1), visits, atol=1e-12)
    right = np.asarray(mdp.rewards).mean(-1)
    values = mdp_module.solve_bellman(mdp, policy, jnp.asarray(right))
    np.testing.assert_allclose(values, np.linalg.solve(matrix, right), atol=1e-10)


def test_inflow_is_the_transpose_of_expected_next(logs):
    generator = np.random.default_rng(0)
    values = jnp.asarray(generator.normal(size=logs.mdp.states))
    visits = jnp.asarray(generator.random(logs.behaviour.shape))
    forward = (visits * mdp_module.expected_next(logs.mdp, values)).sum()
    assert forward == pytest.approx(float(values @ mdp_module.inflow(logs.mdp, visits)), rel=1e-12)
