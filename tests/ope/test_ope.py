"""Estimates of behaviour clones against simulation, of policies that the logs do not cover, and verdicts."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from corsdice import data, envs
from corsdice.envs.simulate import simulate
from corsdice.ope import (
    EpisodeEstimate,
    Evidence,
    ask,
    ask_function,
    estimators,
    evidence_of,
    extraction,
    judge,
)
from corsdice.ope.verdict import LARGEST_NEGATIVE, LARGEST_OUTSIDE, LARGEST_RESIDUAL
from corsdice.policy import Policy
from corsdice.training.run import Trainer, plan_of

EPISODES = 120
DISCOUNT = 0.99


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
    options = {"steps": 1500, "widths": (32, 32), "waves": 16, "batch_size": 128}
    plan = plan_of("bc-all", logs, [40.0], horizon=task.horizon, holdout=0.5, chunk=1500, options=options)
    trainer = Trainer(plan, logs)
    trainer.advance()
    policy = trainer.outcome.policy(0)
    evidence = evidence_of(trainer.held, trainer.units, task.horizon, DISCOUNT)
    estimator = estimators.estimator("extraction", evidence)
    return Clone(task, trainer.held, evidence, policy, estimator, estimator(ask(evidence, policy)))


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
            print(prefix, name, interval, true, error)
            assert interval.low - width / 2 <= true <= interval.high + width / 2


def test_an_interval_holds_its_value_and_is_not_a_point(clone):
    for interval in (*clone.estimate.episode, *clone.estimate.discounted):
        assert interval.low < interval.value < interval.high


def test_the_interval_is_as_wide_as_the_mean_of_so_many_episodes_is_uncertain(clone):
    """It is about the mean of the logs, whose standard error is known: half to twice as wide is told."""
    for interval, values in zip(clone.estimate.episode, (clone.held.rewards, clone.held.costs), strict=True):
        sums = clone.held.episodes.sums(values)
        expected = 2 * 1.96 * sums.std(ddof=1) / np.sqrt(len(sums))
        print((interval.high - interval.low) / expected)
        assert expected / 2 < interval.high - interval.low < 2 * expected


def test_corrections_say_how_much_discounted_time_there_is(clone):
    """E_D[w] is (1-γ) Σ γ^t P(alive at t): 1 where nothing terminates."""
    found = clone.estimate.diagnostics
    assert found.corrections.shape == (clone.held.transitions,)
    assert found.mean_correction == pytest.approx(found.corrections.mean(), rel=1e-12)
    if not clone.held.terminals.any():
        # The constant is one of the features, and without terminations the flow carries it unchanged.
        assert found.mean_correction == pytest.approx(1, abs=1e-3)
        return
    steps = envs.rollout.__globals__["discounted_steps"](DISCOUNT)
    run = envs.rollout(clone.task, clone.policy.act, clone.policy.params, jax.random.key(0), 400, steps)
    time = (1 - DISCOUNT) * (run.lived * DISCOUNT ** jnp.arange(steps)).sum(-1)
    print("Ew", found.mean_correction, time.mean(), time.std() / 20)


def test_a_clone_is_covered_by_the_logs(clone):
    found = clone.estimate.diagnostics
    print(found)
    assert 0.2 < found.effective_share <= 1
    assert found.effective_sample_size == pytest.approx(found.effective_share * EPISODES / 2)
    assert found.flow_residual < LARGEST_RESIDUAL
    assert 0 <= found.negative_share < LARGEST_NEGATIVE
    assert found.outside < LARGEST_OUTSIDE
    assert judge(clone.estimate.episode.cost, found, clone.task.horizon).verdict == "meets"


def test_an_estimate_is_the_same_every_time(clone):
    again = clone.estimator(ask(clone.evidence, clone.policy))
    jax.tree.map(np.testing.assert_array_equal, clone.estimate, again)


def test_rows_that_do_not_fill_their_chunks_count_as_they_should(clone, monkeypatch):
    """In 7 rows less than a chunk, or 23 chunks and padding: a sum in another order. Without sketches, which take
    chunks and not rows."""
    monkeypatch.setattr(extraction, "SKETCHES", 0)
    question = ask(clone.evidence, clone.policy)
    found = []
    for chunk in (clone.evidence.rows + 7, clone.evidence.rows // 23 - 1):
        monkeypatch.setattr(extraction, "CHUNK", chunk)
        found.append(extraction.estimator(clone.evidence, waves=100, bases=1)(question))
    whole, parts = found
    print(whole.episode, parts.episode, np.abs(whole.diagnostics.corrections - parts.diagnostics.corrections).max())


@pytest.mark.parametrize("clone", ["point-run"], indirect=True)
def test_a_policy_that_acts_unlike_the_logs_is_called_so_at_every_limit(clone):
    """Full reverse, which no driver does on the way."""
    found = clone.estimator(ask_function(clone.evidence, lambda rows: np.tile([-1.0, 1.0], (len(rows), 1)), (3,)))
    print(found)
    for limit in (0.0, 10.0, clone.task.horizon):
        verdict = judge(found.episode.cost, found.diagnostics, limit)
        print(verdict)
        assert verdict.verdict == "unknown"
