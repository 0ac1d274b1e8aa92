"""Estimates of a behaviour clone, whose truth the logs tell, and verdicts on estimates made by hand."""

import numpy as np
import pytest

from corsdice import envs
from corsdice.envs.simulate import simulate
from corsdice.ope import Estimate, Interval, estimator, judge
from corsdice.ope.verdict import FEWEST_EPISODES, LARGEST_NEGATIVE, LARGEST_RESIDUAL
from corsdice.training.run import Trainer, plan_of

EPISODES = 120


@pytest.fixture(scope="module", params=["point-run", "point-ridge"])
def clone(request):
    """A clone of all drivers, its estimate from episodes that it was not trained on, and those episodes."""
    task = envs.TASKS[request.param]
    logs = envs.collect(task, 0, EPISODES)
    options = {"steps": 1500, "widths": (32, 32), "waves": 16, "batch_size": 128}
    plan = plan_of("bc-all", logs, [40.0], horizon=task.horizon, holdout=0.5, chunk=1500, options=options)
    trainer = Trainer(plan, logs)
    trainer.advance()
    policy = trainer.outcome.policy(0)
    estimate = estimator(trainer.held, trainer.units, task.horizon, waves=128)
    return task, trainer.held, policy, estimate(policy), estimate


def logged(held):
    """The mean return and cost of an episode."""
    return [float(held.episodes.sums(values).mean()) for values in (held.rewards, held.costs)]


def of(estimate):
    return estimate.episode_return, estimate.episode_cost


def test_a_clone_is_estimated_to_do_what_the_logs_do(clone):
    """Within the interval and once its width more: the clone is not quite the drivers, the interval not quite 95 %."""
    _, held, _, estimate, _ = clone
    for interval, mean in zip(of(estimate), logged(held), strict=True):
        width = interval.high - interval.low
        assert interval.low - width / 2 <= mean <= interval.high + width / 2


def test_the_estimate_of_a_clone_holds_its_truth(clone):
    """As the simulator tells it, with the same allowance, for an estimate with noise of its own."""
    task, _, policy, estimate, _ = clone
    truth = simulate(policy, task.name, 400)
    for interval, name in zip(of(estimate), ("return", "cost"), strict=True):
        width = interval.high - interval.low + 2 * truth[f"{name}_se"]
        assert interval.low - width / 2 <= truth[name] <= interval.high + width / 2


def test_an_interval_holds_its_value_and_is_not_a_point(clone):
    for interval in of(clone[3]):
        assert interval.low < interval.value < interval.high


def test_the_interval_is_as_wide_as_the_mean_of_so_many_episodes_is_uncertain(clone):
    """It is about the mean of the logs, whose standard error is known: half to twice as wide is told."""
    _, held, _, estimate, _ = clone
    for interval, values in zip(of(estimate), (held.rewards, held.costs), strict=True):
        sums = held.episodes.sums(values)
        expected = 2 * 1.96 * sums.std(ddof=1) / np.sqrt(len(sums))
        assert expected / 2 < interval.high - interval.low < 2 * expected


def test_corrections_say_how_much_time_there_is(clone):
    """E_D[w] is the mean length of an episode as a share of the horizon: 1 where nothing terminates."""
    task, held, _, estimate, _ = clone
    assert estimate.corrections.shape == (held.transitions,)
    assert estimate.mean_correction == pytest.approx(estimate.corrections.mean(), abs=1e-6)
    lengths = held.episodes.lengths
    if held.terminals.any():
        assert estimate.mean_correction < 1
        error = lengths.std(ddof=1) / np.sqrt(len(lengths)) / task.horizon
        assert abs(estimate.mean_correction - lengths.mean() / task.horizon) < 4 * error
    else:
        # The constant is one of the features, and without terminations the flow carries it unchanged.
        assert estimate.mean_correction == pytest.approx(1, abs=1e-3)


def test_a_clone_is_covered_by_the_logs(clone):
    estimate = clone[3]
    assert 0.2 < estimate.effective_share <= 1
    assert estimate.effective_sample_size == pytest.approx(estimate.effective_share * EPISODES / 2)
    assert estimate.flow_residual < LARGEST_RESIDUAL
    assert 0 <= estimate.negative_share < LARGEST_NEGATIVE


def test_an_estimate_is_the_same_every_time(clone):
    _, _, policy, estimate, again = clone
    for first, second in zip(estimate, again(policy), strict=True):
        np.testing.assert_array_equal(first, second)


def made_by_hand(**changes):
    """A cost of 30, between 20 and 40, with nothing to object to."""
    good = Estimate(
        episode_return=Interval(100.0, 90.0, 110.0),
        episode_cost=Interval(30.0, 20.0, 40.0),
        effective_sample_size=50.0,
        effective_share=0.5,
        mean_correction=1.0,
        negative_share=0.0,
        flow_residual=0.01,
        corrections=np.ones(3),
    )
    return good._replace(**changes)


@pytest.mark.parametrize(
    ("limit", "verdict"), [(50, "meets"), (40, "meets"), (39.9, "unknown"), (20, "unknown"), (19.9, "violates")]
)
def test_a_verdict_needs_the_whole_interval_on_one_side(limit, verdict):
    found = judge(made_by_hand(), limit)
    assert found.verdict == verdict
    assert "cost 30, 95 % interval 20 to 40" in found.reason
    assert ("the interval holds the limit" in found.reason) == (verdict == "unknown")


@pytest.mark.parametrize("limit", [5, 30, 500])
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"effective_sample_size": FEWEST_EPISODES - 0.1}, "the like of only 9.9 episodes"),
        ({"flow_residual": LARGEST_RESIDUAL + 0.01}, "leaves what the logs cover"),
        ({"negative_share": LARGEST_NEGATIVE + 0.01}, "leaves what the logs cover"),
    ],
    ids=["few episodes", "flow", "negative"],
)
def test_an_estimate_that_cannot_stand_gives_no_verdict_at_any_limit(changes, says, limit):
    found = judge(made_by_hand(**changes), limit)
    assert found.verdict == "unknown"
    assert says in found.reason


@pytest.mark.parametrize("field", ["effective_sample_size", "flow_residual", "negative_share", "episode_cost"])
def test_an_estimate_that_is_no_number_gives_no_verdict(field):
    nothing = Interval(np.nan, np.nan, np.nan) if field == "episode_cost" else np.nan
    assert judge(made_by_hand(**{field: nothing}), 50).verdict == "unknown"


def test_diagnostics_at_their_bounds_still_stand():
    bounds = {
        "effective_sample_size": FEWEST_EPISODES,
        "flow_residual": LARGEST_RESIDUAL,
        "negative_share": LARGEST_NEGATIVE,
    }
    assert judge(made_by_hand(**bounds), 50).verdict == "meets"


@pytest.mark.parametrize(
    ("limit", "words"), [(50, "meets the limit: "), (10, "does not meet the limit: "), (30, "cannot be told: ")]
)
def test_a_verdict_is_told_in_plain_words(limit, words):
    assert str(judge(made_by_hand(), limit)).startswith(words)
