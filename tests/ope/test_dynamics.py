"""What a learned model imagines of a policy, against simulation."""

from functools import cache

import jax
import numpy as np
import pytest

from corsdice import envs
from corsdice.algorithms.logs import units_of
from corsdice.dynamics import imagine
from corsdice.envs.rollout import rollout
from corsdice.ope import ask_function, evidence_of, extraction
from corsdice.ope.dynamics import Imagination, fit_dynamics, joined

DISCOUNT = 0.99
SLOPES, OFFSETS = np.array([[0, -4.8], [-4, 0], [0, -4]]) / 3, np.array([9.6, 0]) / 3


def steady(rows):
    """Along the lane at a speed of 2, where cost begins; for NumPy's rows and JAX's."""
    return (rows @ SLOPES + OFFSETS).clip(-1, 1)


def astray(rows):
    """Full reverse and to the side, which no driver does."""
    return np.tile([-1.0, 1.0], (len(rows), 1))


@cache
def imagination_of(name, episodes=200):
    logs = envs.collect(envs.TASKS[name], 0, episodes)
    evidence = evidence_of(logs, units_of(logs, DISCOUNT), envs.TASKS[name].horizon, DISCOUNT)
    return Imagination(fit_dynamics(evidence), evidence)


def asked(evidence, policy):
    return ask_function(evidence, policy, (3,))


def imagined_by(imagination, policy):
    return imagination.episodes(asked(imagination.evidence, policy).act)


@pytest.mark.parametrize("name", ["point-run", "point-ridge"])
def test_imagined_episodes_are_like_simulated_ones(name):
    """Within three standard errors, and what a speed that is off by .015 makes of return and cost.

    20,000 rows with a noise of .1 tell one step's mean to some thousandths, and the loop through the policy doubles it.
    At a speed of 2, where cost begins, that is a matter of three steps in a hundred.
    """
    imagination = imagination_of(name)
    found, _ = imagined_by(imagination, steady)
    truth = jax.device_get(rollout(envs.TASKS[name], lambda _, key, row: steady(row), (), jax.random.key(1), 2000))
    lived = np.cumsum(truth.terminated, 1) - truth.terminated == 0
    assert lived[:, -1].all() == (name == "point-run")
    steps = lived.sum(1).mean()
    crowd = (np.abs(truth.rewards[lived] - 2) < 0.05).mean() / 0.1  # of speeds at the limit, for each unit of speed
    slopes = steps, steps * crowd, 0.0
    simulated_columns = truth.rewards, truth.costs, np.ones_like(truth.rewards)
    for imagined, simulated, slope in zip([*found.values, np.ones(found.rows)], simulated_columns, slopes, strict=True):
        told, simulated = found.episodes.sums(imagined), (simulated * lived).sum(1)
        deviation = np.sqrt(simulated.var() / len(simulated) + told.var() / len(told))
        assert abs(told.mean() - simulated.mean()) <= 3 * deviation + 0.015 * slope


def test_imagined_noise_has_the_columns_of_a_row_together():
    """The place follows the speed, y' = y + v_y'/10, which noise for each column alone would break."""
    found, _ = imagined_by(imagination_of("point-run"), steady)
    scale, shift = found.units.observation_scale, found.units.observation_shift
    (y, _, v), (next_y, _, next_v) = (
        (rows * scale + shift).T for rows in (found.observations, found.next_observations)
    )
    surprise = next_v - v - np.polyval(np.polyfit(v, next_v - v, 1), v)
    assert np.std(next_y - y - 0.1 * next_v) < 0.2 * np.std(0.1 * surprise)


def test_a_policy_that_leaves_the_logs_is_strange():
    imagination = imagination_of("point-run")
    assert imagination.strange(imagination.evidence) == pytest.approx(0.01, abs=1e-3)
    assert imagination.strange(imagined_by(imagination, steady)[0]) < 0.1
    assert imagination.strange(imagined_by(imagination, astray)[0]) > 0.5


def test_the_compiled_episodes_are_those_of_the_loop():
    imagination = imagination_of("point-ridge")
    act = asked(imagination.evidence, steady).act
    units = imagination.evidence.units

    def compiled(rows, key):
        raw = rows * units.observation_scale + units.observation_shift
        return (steady(raw) - units.action_shift) / units.action_scale

    by_loop, answers = imagination.episodes(act)
    starts, steps = by_loop.initial_observations, imagination.evidence.horizon
    found, lived = jax.jit(lambda key: imagine(imagination.model, compiled, starts, steps, key))(jax.random.key(0))
    lived = np.asarray(lived).T
    assert not lived.all()  # some end early
    for ours, loop in [
        (found.observations, by_loop.observations),
        (found.actions, by_loop.actions),
        (found.next_actions, answers.next_actions),
        (found.values, by_loop.values.T),
        (~found.ended, by_loop.alive),
    ]:
        np.testing.assert_allclose(np.swapaxes(np.asarray(ours), 0, 1)[lived], loop, atol=1e-3)


def test_imagined_episodes_follow_the_logged_ones():
    imagination = imagination_of("point-ridge")
    logged, question = imagination.evidence, asked(imagination.evidence, steady)
    imagined, answers = imagined_by(imagination, steady)
    evidence, both = joined((logged, question), (imagined, answers))
    assert evidence.rows == logged.rows + imagined.rows == len(both.next_actions)
    assert len(evidence.initial_observations) == len(evidence.episodes.starts) == len(both.initial_actions)
    for episode in range(len(logged.episodes.starts), len(evidence.episodes.starts)):
        first, stop = evidence.episodes.starts[episode], evidence.episodes.stops[episode]
        np.testing.assert_array_equal(evidence.observations[first], evidence.initial_observations[episode])
        np.testing.assert_array_equal(
            evidence.observations[first + 1 : stop], evidence.next_observations[first : stop - 1]
        )
        assert evidence.alive[first : stop - 1].all()


def test_a_model_that_is_given_is_the_one_that_imagines():
    imagination = imagination_of("point-run", 40)
    evidence, own = imagination.evidence, imagination.model
    question = asked(evidence, steady)
    asked_for = []

    def given():
        asked_for.append(own)
        return own._replace(noise=2 * own.noise)

    of_given = extraction.estimator(evidence, given, waves=(16,))
    first, again = of_given(question), of_given(question)
    assert first.episode == again.episode != extraction.estimator(evidence, lambda: own, waves=(16,))(question).episode
    assert len(asked_for) == 1


def test_what_is_mostly_strange_is_told_and_left_out(monkeypatch):
    evidence = imagination_of("point-run", 40).evidence
    question = asked(evidence, steady)
    found = {}
    for strange in (0.5, 0.51):
        monkeypatch.setattr(Imagination, "strange", lambda self, imagined, share=strange: share)
        found[strange] = extraction.estimator(evidence, waves=(16,))(question)
        assert found[strange].diagnostics.strange == strange
    of_logs = extraction.estimator(evidence, waves=(16,))(question._replace(act=None))
    assert found[0.51].episode == of_logs.episode != found[0.5].episode


def test_reward_and_cost_are_told_by_where_a_step_leads():
    """On point-run reward and cost are of the speed after the step: s' tells both, where (s,a) leaves noise."""
    imagination = imagination_of("point-run")
    imagined, _ = imagined_by(imagination, steady)
    units = imagination.evidence.units
    after = np.asarray(imagined.next_observations) * units.observation_scale + units.observation_shift
    error = imagined.values[0] - after[:, 1]
    assert np.sqrt((error**2).mean()) < 0.1 * imagination.evidence.values[0].std()
    clear = np.abs(after[:, 1] - 2) > 0.2
    fast = (after[:, 1] > 2) | (np.abs(after[:, 0]) > 1)
    assert np.abs(imagined.values[1] - fast)[clear].mean() < 0.02


def test_diagnostics_are_of_the_logs_whatever_is_imagined(monkeypatch):
    monkeypatch.setattr(extraction, "MOSTLY_STRANGE", 1.0)
    evidence = imagination_of("point-run", 40).evidence
    question = asked(evidence, steady)
    estimate = extraction.estimator(evidence, waves=(16,))
    one, other = estimate(question), estimate(question._replace(act=lambda rows, key: np.zeros((len(rows), 2))))
    assert one.episode != other.episode
    assert one.diagnostics.strange != other.diagnostics.strange
    assert len(one.diagnostics.corrections) == evidence.rows
    np.testing.assert_array_equal(one.diagnostics.corrections, other.diagnostics.corrections)


def test_an_estimate_by_a_model_is_as_unsure_as_the_logs_are_few():
    """Episodes that were imagined do not narrow the interval."""
    influence = np.random.default_rng(0).normal(size=400)
    few, many = (extraction.bootstrap([0.0], [influence], (-9, 9), drawn=drawn) for drawn in (100, 400))
    assert (few.high - few.low) / (many.high - many.low) == pytest.approx(2, rel=0.1)
