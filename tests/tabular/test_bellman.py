import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from small_problems import ALPHAS, make_logs

from corsdice import tabular
from corsdice.divergences import CHI2, DIVERGENCES, KL
from corsdice.tabular.bellman import fixed_point, greedy_backup, regularised_backup

every_divergence = pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=DIVERGENCES)
BEHAVIOUR = np.array([[0.2, 0.3, 0.5]])


@every_divergence
@pytest.mark.parametrize("total", [1.0, 1 / 9, 9.0])
@settings(max_examples=40)
@given(q=st.lists(st.floats(-20, 20), min_size=3, max_size=3), alpha=st.floats(0.05, 10))
def test_the_multiplier_is_the_root_that_a_bracketing_search_finds(divergence, total, q, alpha):
    with tabular.float64():
        q = jnp.array([q])
        backup = regularised_backup(divergence, BEHAVIOUR, alpha, total)(q)

        def excess(u):
            return float((BEHAVIOUR * divergence.weight((q - u) / alpha)).sum() - total)

        bound = 20 * (1 + alpha)
        assert backup.value[0] == pytest.approx(brentq(excess, -20 - bound, 20 + bound, xtol=1e-13), abs=1e-7)
        assert (BEHAVIOUR * backup.w).sum() == pytest.approx(total, rel=1e-9)


@every_divergence
@pytest.mark.parametrize("exact_value", [False, True])
def test_slopes_are_derivatives(divergence, exact_value):
    backup = regularised_backup(divergence, BEHAVIOUR, 0.7, exact_value=exact_value)
    q = jnp.array([[0.3, -0.1, 0.25]])
    numeric = [(backup(q.at[0, a].add(1e-6)).value - backup(q.at[0, a].add(-1e-6)).value)[0] / 2e-6 for a in range(3)]
    np.testing.assert_allclose(backup(q).slope[0], numeric, atol=1e-8)
    assert backup(q).slope.sum() == pytest.approx(1)


@every_divergence
@pytest.mark.parametrize("alpha", [1e-12, 1e-6, 1e6])
def test_no_regularisation_is_too_small_or_too_large(divergence, alpha):
    backup = regularised_backup(divergence, BEHAVIOUR, alpha)(jnp.array([[1.0, 30.0, -50.0]]))
    assert all(bool(jnp.isfinite(part).all()) for part in backup)
    expected = 30.0 if alpha < 1 else (BEHAVIOUR * [1.0, 30.0, -50.0]).sum()
    assert backup.value[0] == pytest.approx(expected, abs=1e-3)


def test_actions_outside_the_logs_have_no_say():
    behaviour = jnp.array([[0.5, 0.0, 0.5]])
    backup = regularised_backup(KL, behaviour, 0.1)(jnp.array([[0.0, 1e6, 1.0]]))
    assert backup.value[0] == pytest.approx(0.1 * np.log(0.5 + 0.5 * np.exp(10)))
    assert backup.w[0, 1] == 0


def test_xql_has_its_logarithm(logs):
    backup = regularised_backup(KL, logs.behaviour, 0.3)
    q = logs.mdp.rewards - 2 * logs.mdp.costs
    direct = 0.3 * jax.scipy.special.logsumexp(q / 0.3, b=logs.behaviour, axis=-1)
    np.testing.assert_allclose(backup(q).value, direct, atol=1e-12)


def test_policy_iteration_agrees_with_the_linear_program():
    for seed in range(4):
        truth, _ = make_logs(seed)
        policy = tabular.optimal_policy(truth, truth.rewards)
        best = tabular.linear_program(truth)
        assert tabular.expected(truth, policy, truth.rewards) == pytest.approx(best.value, abs=1e-9)


def test_newton_falls_back_to_the_contraction_when_its_steps_are_bad(logs):
    """A backup with a wrong slope: Newton's steps mislead, and the safeguard must still find the fixed point."""
    right = regularised_backup(CHI2, logs.behaviour, 0.1)

    def misleading(q):
        backup = right(q)
        return backup._replace(slope=jax.nn.one_hot(q.argmin(-1), q.shape[-1]))

    found = fixed_point(logs.mdp, logs.mdp.rewards, misleading)
    assert found.status == tabular.Status.CONVERGED
    np.testing.assert_allclose(found.nu, fixed_point(logs.mdp, logs.mdp.rewards, right).nu, atol=1e-9)
    assert found.iterations > 50


@pytest.mark.parametrize("alpha", ALPHAS)
def test_newton_needs_a_handful_of_steps(logs, alpha):
    for solve in (tabular.semidice, tabular.sql, tabular.xql, tabular.behaviour_regularised):
        solution = solve(logs, alpha)
        assert solution.status == tabular.Status.CONVERGED
        assert solution.iterations <= 10


def test_greedy_is_the_limit_of_every_regularised_backup(logs):
    q = logs.mdp.rewards + logs.mdp.costs
    for divergence in DIVERGENCES.values():
        value = regularised_backup(divergence, logs.behaviour, 1e-10)(q).value
        np.testing.assert_allclose(value, greedy_backup(q).value, atol=1e-7)
