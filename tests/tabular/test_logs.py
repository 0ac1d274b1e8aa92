import jax
import jax.numpy as jnp
import numpy as np
import pytest

from corsdice import tabular


@pytest.fixture(scope="module")
def truth():
    with tabular.float64():
        return tabular.random_mdp(jax.random.key(3), 8, 2, 3, 0.9, absorbing=True)


def test_counts_add_up_and_repeat(truth):
    policy = tabular.uniform_policy(truth)
    counts = tabular.simulate_counts(jax.random.key(0), truth, policy, 7, 11)
    assert counts.sum() == 7 * 11
    np.testing.assert_array_equal(counts, tabular.simulate_counts(jax.random.key(0), truth, policy, 7, 11))
    assert (counts != tabular.simulate_counts(jax.random.key(1), truth, policy, 7, 11)).any()
    assert counts[0].sum() >= 7  # every episode starts in state 0


def test_many_episodes_show_the_truth(truth):
    policy = jnp.full((truth.states, truth.actions), 0.5).at[0].set(jnp.array([0.9, 0.1]))
    counts = tabular.simulate_counts(jax.random.key(0), truth, policy, 20_000, 20)
    model = tabular.mle_model(truth, counts, "absorbing")
    seen = np.asarray(counts.sum(-1)) > 0
    off = np.abs(np.asarray(model.probabilities - truth.probabilities))[seen]
    sampling = 5 * np.sqrt(0.25 / np.asarray(counts.sum(-1))[seen])[:, None]
    assert (off < sampling).all()
    visited = np.asarray(counts.sum((-1, -2))) > 0
    np.testing.assert_allclose(tabular.empirical_policy(counts)[visited], policy[visited], atol=0.02)


def test_unseen_pairs_follow_the_rule(truth):
    counts = jnp.zeros(truth.successors.shape).at[0, 0, 1].set(4.0).at[0, 0, 2].set(1.0)
    policy = tabular.uniform_policy(truth)
    uniform, absorbing = (tabular.mle_model(truth, counts, rule) for rule in ("uniform", "absorbing"))
    values = jnp.arange(truth.states, dtype=jnp.float64)
    for model, unseen in ((uniform, values.mean()), (absorbing, values[-1])):
        following = tabular.mdp.expected_next(model, values)
        expected = 0.8 * values[truth.successors[0, 0, 1]] + 0.2 * values[truth.successors[0, 0, 2]]
        assert following[0, 0] == pytest.approx(float(expected))
        np.testing.assert_allclose(following[3], float(unseen))
        assert tabular.occupancy(model, policy).sum() == pytest.approx(1)
    np.testing.assert_allclose(tabular.empirical_policy(counts)[0], [1, 0])
    np.testing.assert_allclose(tabular.empirical_policy(counts)[1], 0.5)


def test_the_distribution_of_endless_logs_satisfies_the_flow(truth):
    logs = tabular.logged(truth, tabular.uniform_policy(truth))
    assert tabular.flow_violation(logs, jnp.ones_like(logs.behaviour)) < 1e-13
    assert tabular.policy_violation(logs, jnp.ones_like(logs.behaviour)) < 1e-13
