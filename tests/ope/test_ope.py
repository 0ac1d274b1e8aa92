"""Estimates of behaviour clones against simulation, of policies that the logs do not cover, and verdicts."""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from corsdice import data, envs
from corsdice.algorithms.logs import standard_observations, units_of
from corsdice.costs import discounted_steps
from corsdice.envs.rollout import rollout
from corsdice.envs.simulate import simulate
from corsdice.errors import UserError
from corsdice.ope import (
    EpisodeEstimate,
    Evidence,
    Interval,
    ask,
    ask_function,
    chunks,
    diagnose,
    estimators,
    evidence_of,
    extraction,
    judge,
)
from corsdice.ope.estimate import bootstrap
from corsdice.ope.verdict import LARGEST_STRANGE
from corsdice.policy import Policy, PolicyParams
from corsdice.training.run import Trainer, plan_of

EPISODES = 120
DISCOUNT = 0.99

run_alone = pytest.mark.parametrize("clone", ["point-run"], indirect=True)


class Clone(NamedTuple):
    """A clone of all drivers, its estimate from episodes that it was not trained on, and those episodes."""

    task: envs.Task
    held: data.Dataset
    evidence: Evidence
    policy: Policy
    estimator: estimators.Estimator
    estimate: EpisodeEstimate


@pytest.fixture(scope="module", params=["point-run", "point-ridge"])
def clone(request):
    task = envs.TASKS[request.param]
    logs = envs.collect(task, 0, EPISODES)
    options = {"steps": 1500, "widths": (32, 32), "batch_size": 128}
    plan = plan_of("bc-all", logs, [40.0], horizon=task.horizon, holdout=0.5, chunk=1500, options=options)
    trainer = Trainer(plan, logs)
    trainer.advance()
    policy = trainer.outcome.policy(0)
    held = trainer.split.held_out
    evidence = evidence_of(held, trainer.units, task.horizon, DISCOUNT)
    estimator = estimators.estimator("extraction", evidence)
    return Clone(task, held, evidence, policy, estimator, estimator(ask(evidence, policy)))


def test_a_clone_is_estimated_to_do_what_the_logs_do(clone):
    """Within the interval and half its width more: the clone is not quite the drivers, the interval not quite 95 %."""
    for interval, values in zip(clone.estimate.episode, (clone.held.rewards, clone.held.costs), strict=True):
        width = interval.high - interval.low
        mean = clone.held.episodes.sums(values).mean()
        assert interval.low - width / 2 <= mean <= interval.high + width / 2


def test_the_estimate_of_a_clone_holds_its_truth_in_both_units(clone):
    """As the simulator tells it, with the same allowance, for an estimate with noise of its own."""
    truth = simulate(clone.policy, clone.task.name, 400, discount=DISCOUNT)
    for prefix, sums in (("", clone.estimate.episode), ("discounted_", clone.estimate.discounted)):
        for name, interval in zip(("return", "cost"), sums, strict=True):
            true, error = truth[f"{prefix}{name}"], truth[f"{prefix}{name}_se"]
            width = interval.high - interval.low + 2 * error
            assert interval.low - width / 2 <= true <= interval.high + width / 2


def test_an_interval_holds_its_value_and_is_not_a_point(clone):
    for interval in (*clone.estimate.episode, *clone.estimate.discounted):
        assert interval.low < interval.value < interval.high


def test_corrections_say_how_much_discounted_time_there_is(clone):
    """E_D[w] is (1-γ) Σ γ^t P(alive at t): 1 where nothing terminates."""
    found = clone.estimate.diagnostics
    assert found.corrections.shape == (clone.held.transitions,)
    assert found.mean_correction == pytest.approx(found.corrections.mean(), rel=1e-12)
    if not clone.held.terminals.any():
        # The constant is one of the features, and without terminations the flow carries it unchanged.
        assert found.mean_correction == pytest.approx(1, abs=1e-3)
        return
    steps = discounted_steps(DISCOUNT)
    run = rollout(clone.task, clone.policy.act, clone.policy.params, jax.random.key(0), 400, steps)
    time = (1 - DISCOUNT) * (run.lived * DISCOUNT ** np.arange(steps)).sum(-1)
    # The estimate rests on fewer episodes than the simulation, which tells how much they differ.
    assert time.mean() < 0.9
    assert abs(found.mean_correction - time.mean()) < 3 * time.std() / np.sqrt(found.effective_sample_size)


def test_a_clone_is_covered_by_the_logs(clone):
    found = clone.estimate.diagnostics
    assert 0.2 < found.effective_share <= 1
    assert found.effective_sample_size == pytest.approx(found.effective_share * EPISODES / 2)
    assert found.flow_residual < 0.1
    assert 0 <= found.negative_share < 0.2
    assert found.outside < 0.1


def test_an_estimate_is_the_same_every_time(clone):
    again = clone.estimator(ask(clone.evidence, clone.policy))
    jax.tree.map(np.testing.assert_array_equal, clone.estimate, again)


@cache
def small_logs(name):
    return envs.collect(envs.TASKS[name], 0, 30)


def small_evidence(name, **choices):
    logs = small_logs(name)
    return evidence_of(logs, units_of(logs, DISCOUNT), envs.TASKS[name].horizon, DISCOUNT, **choices)


@run_alone
def test_a_policy_that_acts_unlike_the_logs_is_called_so(clone):
    """Full reverse and to the side, always, which no driver does."""
    found = clone.estimator(ask_function(clone.evidence, lambda rows: np.tile([-1.0, 1.0], (len(rows), 1)), (3,)))
    assert found.diagnostics.outside > 0.5


def test_rows_that_do_not_fill_their_chunks_count_as_they_should(monkeypatch):
    """All in one chunk, or in seven, some with padding: the same sums in another order.

    So to float32's 1e-7 times the condition of the regressions, which penalties hold to 1e4.
    """
    evidence = small_evidence("point-run")
    question, found = ask_function(evidence, steady, (3,))._replace(act=None), []
    assert evidence.rows % 7
    for chunk in (evidence.rows, -(-evidence.rows // 7)):
        monkeypatch.setattr(chunks, "CHUNK", chunk)
        found.append(extraction.estimator(evidence, waves=(16,))(question))
    whole, parts = found
    np.testing.assert_allclose(whole.diagnostics.corrections, parts.diagnostics.corrections, atol=1e-3)
    for one, other in zip((*whole.episode, *whole.discounted), (*parts.episode, *parts.discounted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3)


SLOPES, OFFSETS = np.array([[0, -4.8], [-4, 0], [0, -4]]) / 3, np.array([9.6, 0]) / 3


def steady(rows):
    """The scripted driver of point-run between slow and fast, without noise and in NumPy alone."""
    return np.clip(rows @ SLOPES + OFFSETS, -1, 1)


@pytest.mark.slow
def test_the_interval_is_as_wide_as_estimates_from_other_logs_scatter(monkeypatch):
    """Twelve logs tell a deviation to a fifth; held to three times that."""
    monkeypatch.setattr(diagnose, "CHECK_WAVES", 8)  # of no matter here
    task, found = envs.TASKS["point-run"], []
    for seed in range(12):
        logs = envs.collect(task, seed, 60)
        evidence = evidence_of(logs, units_of(logs, DISCOUNT), task.horizon, DISCOUNT)
        found.append(extraction.estimator(evidence, waves=(16,))(ask_function(evidence, steady, (3,))))
    for unit in ("episode", "discounted"):
        for quantity in range(2):
            values, low, high = np.array([getattr(each, unit)[quantity] for each in found]).T
            assert values.std(ddof=1) / ((high - low).mean() / (2 * 1.96)) == pytest.approx(1, abs=3 / 5)


@dataclass(frozen=True)
class Linear:
    """An actor without noise, clipped to the logs' box."""

    actions: int = 2

    def draw(self, params, observations, key):
        kernel, bias = params
        return jnp.clip(observations @ kernel + bias, -1, 1)


def as_an_actor(units):
    """The same as a trained policy."""
    kernel = units.observation_scale[:, None] * SLOPES / units.action_scale
    bias = (units.observation_shift @ SLOPES + OFFSETS - units.action_shift) / units.action_scale
    params = kernel.astype(np.float32), bias.astype(np.float32)
    return Policy(Linear(), PolicyParams(params, units), {})


def test_a_function_is_asked_what_a_trained_policy_is_asked():
    """In raw units, of the shape that is said, and with the same answer but for rounding."""
    evidence, shapes = small_evidence("point-run"), []
    centre, reach = evidence.units.action_shift, evidence.units.action_scale

    def column(rows):
        shapes.append(rows.shape)
        return np.clip(steady(rows[..., 0]), centre - reach, centre + reach)

    asked, trained = ask_function(evidence, column, (3, 1)), ask(evidence, as_an_actor(evidence.units))
    assert shapes == [(evidence.rows, 3, 1), (len(evidence.episodes.starts), 3, 1)]
    for one, other in zip(asked[:2], trained[:2], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    estimate = extraction.estimator(evidence, waves=(16,))
    for one, other in zip(estimate(asked).episode, estimate(trained).episode, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3)


@pytest.mark.parametrize(
    "answer",
    [
        lambda rows: np.zeros((len(rows), 3)),
        lambda rows: np.zeros(len(rows)),
        lambda rows: np.full((len(rows), 2), np.nan),
        lambda rows: np.zeros(2),
        lambda rows: np.zeros((2, len(rows))),
    ],
    ids=["three numbers", "one number", "no number", "one action for all", "a column for each row"],
)
def test_a_function_that_does_not_give_actions_is_told_what_it_must_give(answer):
    with pytest.raises(UserError, match="the policy must give 2 finite numbers for each observation"):
        ask_function(small_evidence("point-run"), answer, (3,))


@pytest.mark.parametrize("most", [1, 500, 1700])
def test_of_more_rows_than_are_wanted_whole_episodes_are_kept(most):
    """As many as fit, or one, and always the same."""
    logs, evidence = small_logs("point-ridge"), small_evidence("point-ridge", most=most)
    lengths = evidence.episodes.lengths
    assert evidence.rows == lengths.sum() < logs.transitions
    assert evidence.rows <= most or len(lengths) == 1
    assert evidence.rows > most - 100
    firsts = standard_observations(logs.initial_observations, evidence.units)
    starts = [int(np.flatnonzero((firsts == first).all(-1))[0]) for first in np.asarray(evidence.initial_observations)]
    assert (np.diff(starts) > 0).all()
    np.testing.assert_array_equal(lengths, logs.episodes.lengths[starts])
    np.testing.assert_array_equal(evidence.episodes.sums(evidence.values[0]), logs.episodes.sums(logs.rewards)[starts])
    assert len(evidence.initial_observations) == len(lengths)
    np.testing.assert_array_equal(evidence.values, small_evidence("point-ridge", most=most).values)


def test_logs_that_are_no_larger_than_wanted_are_kept_whole():
    logs = small_logs("point-ridge")
    np.testing.assert_array_equal(
        small_evidence("point-ridge", most=logs.transitions).values, [logs.rewards, logs.costs]
    )


COST = Interval(30.0, 20.0, 40.0)


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [(50, "meets"), (40, "meets"), (39.9, "cannot be told"), (20, "cannot be told"), (19.9, "does not meet")],
)
def test_a_verdict_needs_the_whole_interval_on_one_side(limit, verdict):
    found = judge(COST, 0.02, limit)
    assert found.verdict == verdict
    assert "cost 30, 95 % interval 20 to 40" in found.reason
    assert ("the interval holds the limit" in found.reason) == (verdict == "cannot be told")


@pytest.mark.parametrize(
    ("limit", "more"),
    [(35, "about 4 times as many logged episodes would tell"), (30.5, "no number of logged episodes would tell")],
)
def test_what_cannot_be_told_says_what_can_be_promised_and_what_would_tell(limit, more):
    assert judge(COST, 0.02, limit).reason.endswith(
        f"the interval holds the limit; 40 can be promised today, and {more}"
    )


@pytest.mark.parametrize("limit", [5, 30, 500])
def test_a_policy_that_leaves_the_logs_gets_no_verdict_at_any_limit(limit):
    found = judge(COST, LARGEST_STRANGE + 0.02, limit)
    assert found.verdict == "cannot be told"
    assert "12% of where the policy goes is unlike anything in the logs" in found.reason
    assert judge(COST, np.nan, limit).verdict == "cannot be told"


def test_a_cost_that_is_no_number_gives_no_verdict():
    assert judge(Interval(np.nan, np.nan, np.nan), 0.0, 50).verdict == "cannot be told"


def test_strangeness_at_its_bound_still_stands():
    assert judge(COST, LARGEST_STRANGE, 50).verdict == "meets"


@pytest.mark.parametrize(
    ("limit", "words"), [(50, "meets the limit: "), (10, "does not meet the limit: "), (30, "cannot be told: ")]
)
def test_a_verdict_is_told_in_plain_words(limit, words):
    assert str(judge(COST, 0.02, limit)).startswith(words)


def test_the_interval_reaches_over_every_estimate_and_the_value_is_the_first():
    influence = np.random.default_rng(0).normal(size=400)
    first, second = (bootstrap([value], [influence], (0.0, 100.0)) for value in (10.0, 14.0))
    both = bootstrap([10.0, 14.0], [influence, influence], (0.0, 100.0))
    assert both == (10.0, first.low, second.high)
    assert first.high < 14.0 < second.high
    assert bootstrap([10.0, 140.0], [influence, influence], (0.0, 100.0)).high == 100.0
