"""Means, quantiles and tails over imagined episodes, and their intervals."""

import numpy as np
import pytest
from scipy.special import stdtr

from corsdice.ope.episodes import Episodes


def episodes(costs, logged=None):
    return Episodes(np.zeros_like(costs), costs, logged or costs.shape[1])


def width(interval):
    return interval.high - interval.low


def test_an_interval_holds_the_chance_of_the_first_states_and_how_models_differ():
    by_chance = 100 + np.random.default_rng(0).normal(size=(1, 400)).repeat(4, 0)
    few, many = episodes(by_chance[:, :100]).cost, episodes(by_chance).cost
    assert width(few) / width(many) == pytest.approx(2, rel=0.2)
    wide = episodes(by_chance + np.array([[-3.0], [-1.0], [1.0], [3.0]])).cost
    assert wide.value == pytest.approx(many.value)
    assert width(wide) / 2 == pytest.approx(np.hypot(width(many) / 2, 1.96 * 1.5 * np.std([-3, -1, 1, 3], ddof=1)))


def test_models_that_each_do_without_a_part_of_the_logs_tell_what_other_logs_would_have_told():
    """Each tells the mean of the three parts it has seen; over many logs, the interval holds the truth."""
    parts = np.random.default_rng(0).normal(size=(4000, 4))
    models = (parts.sum(1, keepdims=True) - parts) / 3
    found = [episodes(100 + each[:, None].repeat(50, 1)).cost for each in models]
    held = np.mean([interval.low <= 100 <= interval.high for interval in found])
    assert held == pytest.approx(2 * stdtr(3, 1.96) - 1, abs=0.02)  # three degrees of freedom, not infinitely many


def test_one_first_state_tells_no_less_chance():
    """Episodes that all begin alike still differ by chance, though all models agree."""
    costs = 100 + np.random.default_rng(0).normal(size=(1, 64)).repeat(4, 0)
    assert width(episodes(costs, logged=1).cost) == pytest.approx(2 * 1.96 * costs[0].std(ddof=1) / np.sqrt(64))


def test_first_states_that_are_begun_from_several_times_count_once():
    """Three first states decide all: a hundred episodes of each tell no more of them than one."""
    once = np.array([[1.0, 2.0, 6.0]]).repeat(4, 0)
    assert episodes(np.tile(once, 100), logged=3).cost == pytest.approx(episodes(once).cost)


def test_the_tail_is_that_of_the_distribution():
    """Exponential costs: the quantile is ln 10, the mean beyond it 1 more, the share over 2 e^-2."""
    found = episodes(np.random.default_rng(0).exponential(size=(4, 50_000)))
    assert found.risk.quantile.value == pytest.approx(np.log(10), rel=0.02)
    assert found.risk.cvar.value == pytest.approx(np.log(10) + 1, rel=0.02)
    assert found.share_over(2.0).value == pytest.approx(np.exp(-2), abs=0.003)


@pytest.mark.parametrize("risk", ["quantile", "cvar", "share"])
def test_intervals_of_the_tail_hold_the_truth(risk):
    truth = {"quantile": np.log(10), "cvar": np.log(10) + 1, "share": np.exp(-2)}[risk]
    generator = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        found = episodes(generator.exponential(size=(4, 100)))
        interval = found.share_over(2.0) if risk == "share" else getattr(found.risk, risk)
        assert interval.low <= interval.value <= interval.high
        held += interval.low <= truth <= interval.high
    assert held >= 178  # of 95 % in 200 all but one in a hundred times; models that differ by luck widen some


def test_a_cost_that_never_comes_has_no_tail():
    found = episodes(np.zeros((4, 100)))
    assert found.risk.quantile == found.risk.cvar == (0.0, 0.0, 0.0)
    assert found.share_over(0.0) == (0.0, 0.0, 0.0)
    assert episodes(np.ones((4, 100))).share_over(0.0) == (1.0, 1.0, 1.0)


def test_no_interval_of_a_cost_reaches_below_zero():
    rare = np.zeros((4, 100))
    rare[0, 0] = 50.0
    found = episodes(rare)
    assert found.cost.low == found.risk.cvar.low == found.share_over(10.0).low == 0.0
    assert found.cost.high > found.cost.value > 0
