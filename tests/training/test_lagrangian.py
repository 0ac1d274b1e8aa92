"""What the actor-critic baselines share, against values that are known."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from corsdice import envs, losses
from corsdice.algorithms.lagrangian import episode_cost, q_cost_of
from corsdice.algorithms.logs import Batch, standard_costs, units_of
from corsdice.algorithms.multiplier import controller, steered
from corsdice.costs import CostLimit
from corsdice.training.population import Member, hypers_of

DISCOUNT = 0.99


@pytest.fixture(scope="module")
def dataset():
    return envs.collect(envs.TASKS["point-run"], 0, 20)


def hypers(dataset, limit):
    member = Member(0, 0.3, CostLimit.episodic(limit, horizon=100, discount=DISCOUNT))
    return jax.tree.map(lambda leaf: leaf[0], hypers_of([member], dataset, {}))


def test_a_discounted_sum_of_standard_costs_is_in_the_unit_of_its_limit(dataset):
    """A process that costs .25 a step for ever, or for 100 steps and then ends, has the Q_c that such a sum allows."""
    units = units_of(dataset, DISCOUNT)
    logs, of_limit = SimpleNamespace(units=units), hypers(dataset, 25.0)
    cost = (np.float32(0.25) - units.cost_shift) / units.cost_scale
    steps = Batch(None, None, None, np.full(100, cost), None, (np.arange(100) == 99).astype(np.float32))
    unending = standard_costs(units, steps._replace(terminals=np.zeros(100)), DISCOUNT)[0] / (1 - DISCOUNT)
    assert unending == pytest.approx(float(q_cost_of(of_limit, logs, 0.25)), rel=1e-4)
    ending = DISCOUNT ** np.arange(100) @ standard_costs(units, steps, DISCOUNT)
    # A limit on 100 steps is meant per step of them: what lies beyond them counts as nothing.
    allowed = q_cost_of(of_limit, logs, of_limit.per_step_limit)
    assert ending == pytest.approx(float(allowed), rel=1e-4)
    assert episode_cost(of_limit, logs, allowed) == pytest.approx(25, rel=1e-5)


def test_the_controller_answers_to_the_violation_its_sum_and_its_rise():
    gains = (0.1, 0.01, 1.0)
    state = controller()
    assert state.multiplier == 0
    state = steered(state, jnp.float32(2.0), gains)
    assert state.multiplier == pytest.approx(0.1 * 2 + 0.01 * 2 + 1.0 * 2)
    state = steered(state, jnp.float32(1.0), gains)  # falls: no derivative
    assert state.multiplier == pytest.approx(0.1 * 1 + 0.01 * 3)
    state = steered(state, jnp.float32(-0.5), gains)
    assert state.multiplier == 0  # -.05 + .025
    for _ in range(10):
        state = steered(state, jnp.float32(-1.0), gains)
    assert state.sum == 0  # what is far below the limit is no credit
    assert steered(state, jnp.float32(1.0), gains).sum == 1


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (1.3, 0.4), (-0.2, 2.5)])
def test_the_divergence_from_the_prior_is_the_integral_it_stands_for(mean, deviation):
    def integrand(z):
        return norm.pdf(z, mean, deviation) * (norm.logpdf(z, mean, deviation) - norm.logpdf(z))

    expected = quad(integrand, mean - 12 * deviation, mean + 12 * deviation)[0]
    found = losses.divergence_from_prior(jnp.array([mean, mean]), jnp.log(jnp.array([deviation, deviation])))
    assert found == pytest.approx(2 * expected, abs=1e-5)


def test_the_discrepancy_is_that_of_gaussians_and_none_between_equal_samples():
    """E of the kernel exp(-(x-y)²/2σ) for x - y ~ N(m, v) is √(σ/(σ+v)) exp(-m²/2(σ+v))."""
    width, count = 0.5, 2000
    x, y = (jax.random.normal(jax.random.key(seed), (count, 1)) for seed in (0, 1))

    def kernel(m, v):
        return np.sqrt(width / (width + v)) * np.exp(-(m**2) / 2 / (width + v))

    for shift in (0.5, 2.0):
        expected = np.sqrt(2 * kernel(0, 2) - 2 * kernel(shift, 2))
        found = losses.maximum_mean_discrepancy(x, y + shift, width)
        assert found == pytest.approx(expected, abs=4 / np.sqrt(count))
    assert losses.maximum_mean_discrepancy(x, x, width) == pytest.approx(1e-3, rel=0.1)  # the root's guard


def test_the_discrepancy_has_a_slope_even_where_there_is_none():
    x = jnp.ones((4, 3, 2))
    slope = jax.grad(lambda x: losses.maximum_mean_discrepancy(x, jnp.ones((4, 3, 2)), 50.0).sum())(x)
    assert jnp.isfinite(slope).all()
