import pytest
from hypothesis import given
from hypothesis import strategies as st

from corsdice.costs import CostLimit, PerStepCost
from corsdice.errors import UserError


def test_the_three_units_of_forty_per_thousand_steps():
    limit = CostLimit.episodic(40, horizon=1000, discount=0.99)
    assert limit.per_step == pytest.approx(0.039998, abs=5e-7)
    assert limit.discounted == pytest.approx(3.9998, abs=5e-5)
    assert limit.episode == pytest.approx(40, rel=1e-12)


@given(cost=st.floats(0, 1e3), horizon=st.integers(1, 2000), discount=st.floats(0, 0.999))
def test_a_constant_cost_is_the_same_limit_in_every_unit(cost, horizon, discount):
    """A policy that pays `cost` at each of H steps: its true sums are what the units must say."""
    limit = CostLimit.episodic(cost * horizon, horizon=horizon, discount=discount)
    discounted = sum(cost * discount**t for t in range(horizon))
    assert limit.discounted == pytest.approx(discounted, rel=1e-9)
    assert limit.per_step == pytest.approx((1 - discount) * discounted, rel=1e-9)
    for same in (
        CostLimit.from_discounted(limit.discounted, horizon=horizon, discount=discount),
        CostLimit.from_per_step(limit.per_step, horizon=horizon, discount=discount),
    ):
        assert same.episode == pytest.approx(cost * horizon, rel=1e-9)


def test_admits_compares_in_the_normalised_unit():
    limit = CostLimit.from_per_step(0.1, horizon=100, discount=0.9)
    assert limit.admits(PerStepCost(0.1))
    assert not limit.admits(PerStepCost(0.1001))
    assert limit.admits(PerStepCost(0.1001), tolerance=1e-3)


@pytest.mark.parametrize(
    ("limit", "horizon", "discount", "message"),
    [
        (-1.0, 10, 0.9, "cost limit"),
        (float("nan"), 10, 0.9, "cost limit"),
        (1.0, 10, 1.0, "discount"),
        (1.0, 10, -0.1, "discount"),
        (1.0, 0, 0.9, "horizon"),
        (1.0, 2.5, 0.9, "horizon"),
    ],
)
def test_nonsense_is_refused(limit, horizon, discount, message):
    with pytest.raises(UserError, match=message):
        CostLimit.episodic(limit, horizon=horizon, discount=discount)
