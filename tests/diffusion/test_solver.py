"""The schedule and the solver, against closed forms and against an ODE solver of all purposes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp
from scipy.stats import norm

from corsdice.diffusion import schedule
from corsdice.diffusion.solver import solve

MODES = {
    "one": ([0.2], [1.0], 0.2),
    "two": ([-0.5, 0.5], [0.3, 0.7], 0.05),
    "three": ([-0.5, 0.0, 0.7], [0.4, 0.3, 0.3], 0.1),
}
every_target = pytest.mark.parametrize("target", MODES.values(), ids=MODES)


def beta(t):
    return 0.1 + 19.9 * t


def expected(target):
    """E[x_0 | x] of a mixture of Gaussians in closed form, x [n]."""
    means, shares, deviation = (np.asarray(part) for part in target)

    def predict(x, level):
        alpha, sigma = schedule.signal(level), schedule.deviation(level)
        variance = (alpha * deviation) ** 2 + sigma**2
        off = x[..., None] - alpha * means
        share = jax.nn.softmax(jnp.log(shares) - off**2 / (2 * variance), -1)
        return (share * (means + alpha * deviation**2 / variance * off)).sum(-1)

    return predict


def quantiles(count):
    """Of the standard normal, all equally likely: noise without chance."""
    return jnp.asarray(norm.ppf((np.arange(count) + 0.5) / count), jnp.float32)


def test_the_schedule_is_the_integral_of_its_beta():
    for t in (0.01, 0.3, 1.0):
        integral = quad(beta, 0, t)[0]
        level = schedule.half_log_snr(t)
        assert schedule.signal(level) == pytest.approx(np.exp(-0.5 * integral), rel=1e-4)
        assert schedule.deviation(level) ** 2 == pytest.approx(1 - np.exp(-integral), rel=1e-4)
        assert schedule.time_of(level) == pytest.approx(t, rel=1e-4)


def test_the_grid_and_the_draws_go_from_end_to_end():
    ends = [float(schedule.half_log_snr(t)) for t in (1.0, schedule.FIRST)]
    grid = schedule.grid(15)
    assert (jnp.diff(grid) > 0).all()
    np.testing.assert_allclose(grid[jnp.array([0, -1])], ends, rtol=1e-4)
    np.testing.assert_allclose(schedule.level(jnp.array(ends)), [1, 0], atol=1e-6)
    levels = schedule.level(schedule.draw_levels(jax.random.key(0), 1000))[:, 0]
    assert (jnp.floor(1000 * (1 - levels)) == jnp.arange(1000)).mean() > 0.99  # but for rounding


@every_target
def test_many_steps_lead_where_an_ode_solver_leads(target):
    """dx/dt = -½ β (x + score), the probability flow, by a Runge-Kutta method of order eight."""
    predict = expected(target)

    def flow(t, x):
        level = schedule.half_log_snr(jnp.float32(t))
        alpha, sigma = float(schedule.signal(level)), float(schedule.deviation(level))
        score = (alpha * np.asarray(predict(jnp.asarray(x), level)) - x) / sigma**2
        return -0.5 * beta(t) * (x + score)

    noise = quantiles(40)
    end = solve_ivp(flow, (1.0, schedule.FIRST), np.asarray(noise), "DOP853", rtol=1e-5, atol=1e-6).y[:, -1]
    truth = predict(jnp.asarray(end), schedule.half_log_snr(schedule.FIRST))
    np.testing.assert_allclose(jax.jit(lambda noise: solve(predict, noise, 400))(noise), truth, atol=2e-3)


def test_the_error_falls_with_the_square_of_the_steps():
    """Of one Gaussian, whose flow is known: every quantile of the noise goes to the same quantile of the target."""
    mean, deviation = 0.2, 0.2
    noise = quantiles(101)
    end = schedule.half_log_snr(schedule.FIRST)
    start = schedule.half_log_snr(1.0)

    def spread(level):
        return jnp.hypot(schedule.signal(level) * deviation, schedule.deviation(level))

    z = (noise - schedule.signal(start) * mean) / spread(start)
    truth = expected(MODES["one"])(schedule.signal(end) * mean + spread(end) * z, end)
    errors = [float(jnp.abs(solve(expected(MODES["one"]), noise, n) - truth).max()) for n in (11, 21, 41)]
    assert errors[0] < 0.02
    assert errors[0] / errors[1] > 3
    assert errors[1] / errors[2] > 3


@every_target
def test_fifteen_steps_give_the_target_to_two_hundredths_of_total_variation(target):
    means, shares, deviation = target
    drawn = solve(expected(target), quantiles(20_001), 15)
    edges = np.linspace(-1.2, 1.2, 49)
    found = np.histogram(drawn, edges)[0] / len(drawn)
    truth = sum(share * np.diff(norm.cdf(edges, mean, deviation)) for mean, share in zip(means, shares, strict=True))
    assert np.abs(found - truth).sum() / 2 < 0.02
