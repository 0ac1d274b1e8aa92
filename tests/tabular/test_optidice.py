from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import ALPHAS, make_logs

from corsdice import tabular
from corsdice.divergences import DIVERGENCES
from corsdice.tabular import Status
from corsdice.tabular.mdp import expected_next

every_divergence = pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=DIVERGENCES)


def residual(logs, solution):
    mdp = logs.mdp
    reward = mdp.rewards - solution.lam * mdp.costs
    return reward + mdp.discount * expected_next(mdp, solution.nu) - solution.nu[:, None]


@every_divergence
@pytest.mark.parametrize("alpha", ALPHAS)
def test_optidice_primal_and_dual_values_meet(divergence, alpha):
    """Strong duality: the paper's dual loss (label eq:fulldice) at ν is the primal value at w."""
    for seed in range(3):
        logs = make_logs(seed)[1]
        solution = tabular.optidice(logs, alpha, divergence)
        assert solution.status == Status.CONVERGED
        assert tabular.flow_violation(logs, solution.w) < 1e-10
        primal = (logs.distribution * (solution.w * logs.mdp.rewards - alpha * divergence.f(solution.w))).sum()
        conjugate = divergence.conjugate(residual(logs, solution) / alpha)
        dual = (1 - logs.mdp.discount) * logs.mdp.initial @ solution.nu + alpha * (logs.distribution * conjugate).sum()
        assert primal == pytest.approx(float(dual), abs=1e-9)


@every_divergence
def test_optidice_has_the_closed_form_correction(logs, divergence):
    solution = tabular.optidice(logs, 0.1, divergence)
    closed = divergence.weight(residual(logs, solution) / 0.1)
    np.testing.assert_allclose(solution.w * logs.distribution, closed * logs.distribution, atol=1e-9)


def test_the_scale_of_the_rewards_is_no_matter(logs):
    """Rewards and α times a thousand: the same w, with ν a thousand times."""
    base = tabular.optidice(logs, 0.01)
    scaled_logs = replace(logs, mdp=replace(logs.mdp, rewards=1000 * logs.mdp.rewards))
    scaled = tabular.optidice(scaled_logs, 10.0)
    assert scaled.status == Status.CONVERGED
    np.testing.assert_allclose(scaled.w, base.w, atol=1e-6)
    np.testing.assert_allclose(scaled.lam, 0, atol=1e-6)


@every_divergence
@pytest.mark.parametrize("limit", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("alpha", [1e-3, 1e-1])
def test_coptidice_meets_the_limit_and_its_optimality_conditions(logs, divergence, limit, alpha):
    solution = tabular.coptidice(logs, alpha, limit, divergence)
    assert solution.status == Status.CONVERGED
    cost = logs.estimate(solution.w, logs.mdp.costs)
    assert cost <= limit + 1e-9
    assert solution.lam * (limit - cost) < 1e-8
    assert tabular.expected(logs.mdp, solution.policy, logs.mdp.costs) == pytest.approx(float(cost), abs=1e-8)
    closed = divergence.weight(residual(logs, solution) / alpha)
    np.testing.assert_allclose(solution.w * logs.distribution, closed * logs.distribution, atol=1e-7)


def test_coptidice_tends_to_the_linear_program(logs):
    for limit in (0.02, 0.05, 0.1):
        best = tabular.linear_program(logs.mdp, limit)
        solution = tabular.coptidice(logs, 1e-7, limit)
        assert logs.estimate(solution.w, logs.mdp.rewards) == pytest.approx(best.value, abs=1e-5)
        assert best.cost <= limit + 1e-9


def test_a_loose_limit_is_no_limit(logs):
    free, loose = tabular.optidice(logs, 0.01), tabular.coptidice(logs, 0.01, 10.0)
    np.testing.assert_allclose(loose.w, free.w, atol=1e-7)
    assert loose.lam < 1e-9


def test_an_impossible_limit_is_called_so(line):
    """On the line with costs everywhere no policy is free."""
    costly = replace(line, costs=jnp.ones_like(line.costs))
    logs = tabular.logged(costly, tabular.uniform_policy(costly))
    assert tabular.coptidice(logs, 0.1, 0.5).status == Status.INFEASIBLE
    assert tabular.corsdice(logs, 0.1, 0.5).status == Status.INFEASIBLE
    with pytest.raises(ValueError, match="no policy meets the cost limit"):
        tabular.linear_program(costly, 0.5)


def test_states_outside_the_logs_are_left_alone(line):
    """The behaviour never visits state 1: its correction is zero and the rest is solved as if it were not there."""
    behaviour = jnp.array([[0.0, 1.0], [0.5, 0.5], [0.5, 0.5]])
    logs = tabular.logged(line, behaviour)
    assert logs.state_distribution[1] == 0
    for solve in (tabular.optidice, tabular.semidice, tabular.f_dvl, tabular.odice):
        solution = solve(logs, 0.5)
        assert solution.status == Status.CONVERGED
        assert all(bool(jnp.isfinite(part).all()) for part in jax.tree.leaves(solution))
    np.testing.assert_allclose(tabular.optidice(logs, 0.5).w[0], [0.0, 1.0], atol=1e-9)
