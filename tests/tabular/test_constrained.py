import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import make_logs

from corsdice import tabular
from corsdice.divergences import DIVERGENCES, KL
from corsdice.tabular import Status

every_divergence = pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=DIVERGENCES)


@every_divergence
@pytest.mark.parametrize("alpha", [1e-3, 1e-2, 1e-1])
@pytest.mark.parametrize("limit", [0.01, 0.05, 0.1])
def test_corsdice_meets_the_limit_in_the_model(divergence, alpha, limit):
    for seed in range(3):
        logs = make_logs(seed)[1]
        solution = tabular.corsdice(logs, alpha, limit, divergence)
        cost = tabular.expected(logs.mdp, solution.policy, logs.mdp.costs)
        assert solution.status == Status.CONVERGED
        assert cost <= limit + 1e-9
        assert logs.estimate(solution.w, logs.mdp.costs) == pytest.approx(float(cost), abs=1e-10)
        assert solution.lam * (limit - cost) < 1e-7  # it binds, or it costs nothing


def test_corsdice_with_a_loose_limit_is_semidice(logs):
    loose, free = tabular.corsdice(logs, 0.1, 10.0), tabular.semidice(logs, 0.1)
    assert loose.lam == 0
    assert loose.status == Status.CONVERGED
    np.testing.assert_allclose(loose.policy, free.policy, atol=1e-12)


def test_the_naive_estimate_meets_the_limit_and_its_policy_does_not():
    over = []
    for seed in range(6):
        logs = make_logs(seed)[1]
        solution = tabular.naive_semidice(logs, 0.01, 0.1)
        assert logs.estimate(solution.w, logs.mdp.costs) == pytest.approx(0.1, abs=1e-8)
        over.append(float(tabular.expected(logs.mdp, solution.policy, logs.mdp.costs)) - 0.1)
    assert max(np.abs(over)) > 0.01


def test_no_constrained_policy_beats_the_linear_program(logs):
    for limit in (0.02, 0.1):
        best = tabular.linear_program(logs.mdp, limit).value
        for solve in (tabular.corsdice, tabular.coptidice):
            earned = tabular.expected(logs.mdp, solve(logs, 1e-3, limit).policy, logs.mdp.rewards)
            assert 0.8 * best < earned <= best + 1e-9


def test_with_kl_corsdice_is_the_constrained_regularised_optimum(logs):
    """For KL SemiDICE is exact, so λ minimises the Lagrangian dual: the value can only rise around it."""
    limit, alpha = 0.05, 0.05
    lam = tabular.corsdice(logs, alpha, limit, KL).lam

    def dual(lam):
        start_value = logs.mdp.initial @ tabular.behaviour_regularised(logs, alpha, KL, lam).nu
        return (1 - logs.mdp.discount) * start_value + lam * limit

    around = jnp.array([0.5, 0.9, 0.99, 1.01, 1.1, 2.0]) * lam
    assert (jax.vmap(dual)(around) >= dual(lam) - 1e-12).all()


def test_the_support_of_the_logs_bounds_the_linear_program(line):
    """Only the second action is logged in state 0: the program may not use the first."""
    allowed = np.array([[False, True], [True, True], [True, True]])
    best = tabular.linear_program(line, allowed=allowed)
    assert best.value == pytest.approx(0.5)
    assert tabular.linear_program(line).value == pytest.approx(1.0)
    np.testing.assert_allclose(best.policy[1], 0.5)  # never visited


@every_divergence
def test_the_extracted_cost_falls_with_lambda_and_the_naive_estimate_need_not(divergence):
    """Why λ can be searched for, and ascended on, with the one and not with the other."""
    lams = jnp.geomspace(1e-3, 20, 60)
    rises = []
    for seed in range(4):
        logs = make_logs(seed)[1]

        def estimates(lam, logs=logs):
            semi = tabular.semidice(logs, 1e-3, divergence, lam)
            return [logs.estimate(w, logs.mdp.costs) for w in (tabular.extraction(logs, semi.w).w, semi.w)]

        rises.append([float(jnp.diff(cost).max()) for cost in jax.lax.map(estimates, lams)])
    extracted, naive = np.max(rises, axis=0)
    assert extracted <= 1e-12
    assert naive > 1e-6
