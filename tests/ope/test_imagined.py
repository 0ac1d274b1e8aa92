"""What models of one step imagine of a policy, against simulation."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from corsdice import envs
from corsdice.algorithms.logs import units_of
from corsdice.data.dataset import Dataset
from corsdice.dynamics import are_strange, imagine
from corsdice.envs.rollout import rollout
from corsdice.errors import UserError
from corsdice.ope import dynamics, evidence_of, standard_function
from corsdice.ope.dynamics import fit_ensemble
from corsdice.ope.imagined import ensemble_of

DISCOUNT = 0.99
SLOPES, OFFSETS = np.array([[0, -4.8], [-4, 0], [0, -4]]) / 3, np.array([9.6, 0]) / 3


def steady(rows):
    """Along the lane at a speed of 2, where cost begins; for NumPy's rows and JAX's."""
    return (rows @ SLOPES + OFFSETS).clip(-1, 1)


def astray(rows):
    """Full reverse and to the side, which no driver does."""
    return np.tile([-1.0, 1.0], (len(rows), 1))


@cache
def logs_of(name):
    """So many that the falls from the ridge, one in five episodes, are enough to learn from."""
    logs = envs.collect(envs.TASKS[name], 0, 600 if name == "point-ridge" else 200)
    return evidence_of(logs, units_of(logs, DISCOUNT), envs.TASKS[name].horizon, DISCOUNT)


@cache
def model_of(name):
    return fit_ensemble(logs_of(name), models=1)[0]


@cache
def ensemble(name):
    evidence = logs_of(name)
    return ensemble_of([model_of(name)], evidence.initial_observations, evidence.horizon, 40_000)


def of_function(name, policy):
    return ensemble(name).of_function(standard_function(logs_of(name), policy, (3,)))


@cache
def steps_of(name):
    """What is imagined of the steady policy, step by step, and which steps come before the end."""
    evidence = logs_of(name)
    units = evidence.units

    def act(rows, key):
        raw = rows * units.observation_scale + units.observation_shift
        return (steady(raw) - units.action_shift) / units.action_scale

    play = jax.jit(lambda model, starts, key: imagine(model, act, starts, evidence.horizon, key))
    steps, lived = play(model_of(name), ensemble(name).starts, ensemble(name).keys[0])
    return jax.device_get(steps), np.asarray(lived)


@pytest.mark.parametrize("name", ["point-run", "point-ridge"])
def test_imagined_episodes_are_like_simulated_ones(name):
    """Within three standard errors, and what a speed that is off by .015 makes of return and cost.

    20,000 rows with a noise of .1 tell one step's mean to some thousandths, and the loop through the policy doubles it.
    At a speed of 2, where cost begins, that is a matter of three steps in a hundred.
    """
    steps, going = steps_of(name)
    truth = jax.device_get(rollout(envs.TASKS[name], lambda _, key, row: steady(row), (), jax.random.key(1), 2000))
    lived = np.cumsum(truth.terminated, 1) - truth.terminated == 0
    assert lived[:, -1].all() == (name == "point-run")
    length = lived.sum(1).mean()
    crowd = (np.abs(truth.rewards[lived] - 2) < 0.05).mean() / 0.1  # of speeds at the limit, for each unit of speed
    slopes = length, length * crowd, 0.0
    simulated_columns = truth.rewards, truth.costs, np.ones_like(truth.rewards)
    imagined_columns = [*np.moveaxis(steps.values, -1, 0), np.ones_like(going)]
    for imagined, simulated, slope in zip(imagined_columns, simulated_columns, slopes, strict=True):
        told, simulated = (imagined * going).sum(0), (simulated * lived).sum(1)
        deviation = np.sqrt(simulated.var() / len(simulated) + told.var() / len(told))
        assert abs(told.mean() - simulated.mean()) <= 3 * deviation + 0.015 * slope


@pytest.mark.parametrize("name", ["point-run", "point-ridge"])
def test_the_sums_are_those_of_the_steps(name):
    """Played step by step, as a function that does not compile must be, and compiled."""
    steps, going = steps_of(name)
    found = of_function(name, steady)
    sums = (steps.values * going[..., None]).sum(0)
    np.testing.assert_allclose([each.value for each in found.sums], sums.mean(0), rtol=2e-3)
    np.testing.assert_allclose(found.episodes.costs.mean(), sums[:, 1].mean(), rtol=2e-3)


def test_discounted_sums_run_on_beyond_the_time_limit():
    """As those of simulation, which no time limit cuts off; within 1 %, as the undiscounted ones are."""
    name = "point-run"
    told = ensemble(name).discounted(DISCOUNT).of_function(standard_function(logs_of(name), steady, (3,)))
    long = jax.device_get(
        rollout(envs.TASKS[name], lambda _, key, row: steady(row), (), jax.random.key(1), 200, steps=1000)
    )
    truth = (DISCOUNT ** np.arange(1000) * long.rewards).sum(1).mean()
    assert told.sums.returned.value == pytest.approx(truth, rel=0.01)


def test_imagined_noise_has_the_columns_of_a_row_together():
    """The place follows the speed, y' = y + v_y'/10, which noise for each column alone would break."""
    steps, _ = steps_of("point-run")
    units = logs_of("point-run").units
    (y, _, v), (next_y, _, next_v) = (
        (rows.reshape(-1, 3) * units.observation_scale + units.observation_shift).T
        for rows in (steps.now.observations, steps.following.observations)
    )
    surprise = next_v - v - np.polyval(np.polyfit(v, next_v - v, 1), v)
    assert np.std(next_y - y - 0.1 * next_v) < 0.2 * np.std(0.1 * surprise)


def test_reward_and_cost_are_told_by_where_a_step_leads():
    """On point-run reward and cost are of the speed after the step: s' tells both, where (s,a) leaves noise."""
    steps, _ = steps_of("point-run")
    evidence = logs_of("point-run")
    after = steps.following.observations * evidence.units.observation_scale + evidence.units.observation_shift
    rewards, costs = np.moveaxis(steps.values, -1, 0)
    assert np.sqrt(((rewards - after[..., 1]) ** 2).mean()) < 0.1 * evidence.values[0].std()
    clear = np.abs(after[..., 1] - 2) > 0.2
    fast = (after[..., 1] > 2) | (np.abs(after[..., 0]) > 1)
    assert np.abs(costs - fast)[clear].mean() < 0.02


def test_a_policy_that_leaves_the_logs_is_strange():
    name = "point-run"
    logged = are_strange(model_of(name), logs_of(name).observations)
    assert np.mean(logged) == pytest.approx(0.01, abs=1e-3)
    assert of_function(name, steady).strange < 0.1
    assert of_function(name, astray).strange > 0.5


def test_each_logged_first_state_is_begun_from_equally_often():
    starts = jnp.arange(6.0).reshape(3, 2)
    whole = ensemble_of([None], starts, horizon=10, rows=400)
    assert sorted(whole.starts[:, 0].tolist()) == sorted([0.0, 2.0, 4.0] * (len(whole.starts) // 3))
    assert len(whole.starts) >= 40
    assert len(ensemble_of([None] * 4, jnp.zeros((1000, 2)), horizon=10, rows=2_000).starts) == 50


def test_each_model_does_without_other_episodes():
    logs = envs.collect(envs.TASKS["point-run"], 0, 8)
    models = fit_ensemble(evidence_of(logs, units_of(logs, DISCOUNT), 100, DISCOUNT))
    weights = [np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(each.params)]) for each in models]
    assert all(each.scales == models[0].scales for each in models)  # so that they share what is compiled
    assert len({each.tobytes() for each in weights}) == len(models) == 4


def test_a_clock_that_ends_the_day_is_learned():
    """Every step of the clock is the same, every day ends, and penalties are rare and large."""
    task = envs.TASKS["dispatch"]
    logs = envs.collect(task, 0, 1000)
    evidence = evidence_of(logs, units_of(logs, DISCOUNT), task.horizon, DISCOUNT)
    ensemble = ensemble_of(fit_ensemble(evidence), evidence.initial_observations, task.horizon, 20_000)
    decide = jax.jit(jax.vmap(task.controller, (None, 0)))
    for style in (0.2, 0.8):
        operate = partial(lambda style, rows: np.clip(decide(style, rows), -1, 1), style)
        found = ensemble.of_function(standard_function(evidence, operate, (5,))).sums
        truth = envs.evaluate(task, lambda style, _, state: task.controller(style, state), style, jax.random.key(0))
        assert found.cost.value == pytest.approx(float(truth.episode_cost), abs=0.5)
        assert found.returned.value == pytest.approx(float(truth.episode_return), abs=2)


def test_logs_that_no_model_can_be_learned_from_are_refused(monkeypatch):
    monkeypatch.setattr(dynamics, "fit", lambda *arguments: ({}, jnp.float32(jnp.inf)))  # what no look was below
    logs = envs.collect(envs.TASKS["point-run"], 0, 8)
    with pytest.raises(UserError, match="no model of one step can be learned from these logs"):
        fit_ensemble(evidence_of(logs, units_of(logs, DISCOUNT), 100, DISCOUNT))


def test_what_is_not_observed_is_told_by_the_step_before():
    """A wheel whose speed no observation holds: the place moves by it, and it follows the action slowly."""
    generator = np.random.default_rng(0)
    episodes, horizon = 100, 50
    wheel, place, rows = np.zeros(episodes), np.zeros(episodes), []
    wanted = generator.uniform(-1, 1, episodes)
    for _ in range(horizon):
        action = np.clip(wanted + generator.normal(0, 0.3, episodes), -1, 1)
        wheel = 0.9 * wheel + 0.1 * action
        rows.append((place, action, wheel, place + wheel))
        place = place + wheel
    place, action, wheel, following = (
        np.stack(column, 1).reshape(-1).astype(np.float32) for column in zip(*rows, strict=True)
    )
    last = np.arange(len(place)) % horizon == horizon - 1
    costs = (wheel > 0.5).astype(np.float32)
    logs = Dataset(place[:, None], action[:, None], wheel, costs, following[:, None], np.zeros_like(last), last)
    evidence = evidence_of(logs, units_of(logs, DISCOUNT), horizon, DISCOUNT)
    steady = standard_function(evidence, lambda rows: np.ones((len(rows), 1)), (1,))
    found = ensemble_of(fit_ensemble(evidence), evidence.initial_observations, horizon, 20_000).of_function(steady)
    truth = 1 - 0.9 ** np.arange(1, horizon + 1)
    assert found.sums.returned.value == pytest.approx(truth.sum(), rel=0.02)
    assert found.sums.cost.value == pytest.approx((truth > 0.5).sum(), rel=0.02)


def test_a_linear_map_tells_what_is_linear_and_the_network_what_is_not():
    """A store that is filled and leaks, beside a number that is folded: |x| has a corner where most states lie."""
    generator = np.random.default_rng(0)
    episodes, horizon = 100, 30
    state, rows = generator.uniform(-1, 1, (episodes, 2)), []
    for _ in range(horizon):
        action = generator.uniform(-1, 1, episodes)
        folded = np.abs(state[:, 1]) - 0.5 + 0.5 * action + 0.01 * generator.normal(size=episodes)
        following = np.stack([0.9 * state[:, 0] + 0.1 * action, folded], -1)
        rows.append((state, action[:, None], state[:, 0], following))
        state = following
    observations, actions, rewards, following = (
        np.stack(column, 1).reshape(episodes * horizon, -1).astype(np.float32) for column in zip(*rows, strict=True)
    )
    last = np.arange(len(rewards)) % horizon == horizon - 1
    nothing = np.zeros_like(last)
    costs = nothing.astype(np.float32)
    logs = Dataset(observations, actions, rewards[:, 0], costs, following, nothing, last)
    evidence = evidence_of(logs, units_of(logs, DISCOUNT), horizon, DISCOUNT)
    models = fit_ensemble(evidence)
    assert [np.asarray(each.params["linear"].better).tolist() for each in models] == [[True, False]] * 4
    full = lambda observations, key: jnp.ones((len(observations), 1))  # noqa: E731
    steps = imagine(models[0], full, evidence.initial_observations, horizon, jax.random.key(0))[0]
    store = np.asarray(steps.now.observations[..., 0]) * evidence.units.observation_scale[0]
    store += evidence.units.observation_shift[0]
    exact = 1 - (1 - store[0]) * 0.9 ** np.arange(horizon)[:, None]
    np.testing.assert_allclose(store, exact, atol=2e-3)
