"""The truth about a policy: the same however it is computed, and nothing left behind."""

import multiprocessing
import signal
import threading
import time
from dataclasses import replace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from awkward_envs import DIRECTORY, Brief

from corsdice.algorithms.logs import Units
from corsdice.costs import discounted_steps
from corsdice.envs import TASKS, evaluate
from corsdice.envs.simulate import AT_ONCE, lockstep, simulate, simulate_each
from corsdice.errors import UserError
from corsdice.networks import Actor
from corsdice.policy import Policy, PolicyParams

POINT_RUN = "corsdice.envs.gym:corsdice/point-run-v0"
RUN = TASKS["point-run"]


def make_policy(seed=0, observations=3):
    actor = Actor(2, (32, 32), 3, False)
    variables = actor.init(jax.random.key(seed), jnp.zeros((1, observations)))
    zeros, ones, number = np.zeros(2, np.float32), np.ones(2, np.float32), np.ones((), np.float32)
    shift, scale = np.zeros(observations, np.float32), np.ones(observations, np.float32)
    units = Units(shift, scale, zeros, ones, number, number, number, number)
    about = {"observation_shape": [observations], "action_shape": [2]}
    return Policy(actor, PolicyParams(variables, units), about)


@pytest.fixture(scope="module")
def policy():
    return make_policy()


def awkward(name):
    return f"awkward_envs:awkward/{name}-v0"


def test_side_by_side_is_as_one_at_a_time_bit_for_bit(policy):
    """Across the boundary of a batch too."""
    episodes = range(AT_ONCE - 2, AT_ONCE + 2)
    play = {"env": POINT_RUN, "seed": 3, "discount": 0.99}
    together = lockstep(policy, episodes, **play)
    for i, sums in zip(episodes, together, strict=True):
        np.testing.assert_array_equal(lockstep(policy, range(i, i + 1), **play), [sums])
    assert len(np.unique(together[:, 0])) == len(episodes)


def test_side_by_side_is_as_a_plain_loop(policy):
    seed, discount = 3, 0.97
    act = jax.jit(policy.act)
    plain = []
    for i in range(2):
        env = gymnasium.make(POINT_RUN)
        observation, _ = env.reset(seed=int(np.random.SeedSequence([seed, i]).generate_state(1)[0]))
        sums, t, ended = np.zeros(4), 0, False
        while not ended:
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), i), t)
            action = np.asarray(act(policy.params, key, observation))
            observation, reward, terminated, truncated, info = env.step(action)
            sums += [reward, info["cost"], discount**t * reward, discount**t * info["cost"]]
            t, ended = t + 1, terminated or truncated
        assert t == RUN.horizon
        plain.append(sums)
    np.testing.assert_allclose(lockstep(policy, range(2), POINT_RUN, seed, discount), plain, rtol=1e-3, atol=1e-3)
    truth = simulate(policy, POINT_RUN, 2, seed, discount)
    expected = np.mean(plain, 0)
    for k, name in enumerate(("return", "cost", "discounted_return", "discounted_cost")):
        assert truth[name] == pytest.approx(expected[k], rel=1e-3, abs=1e-3)
        assert truth[f"{name}_se"] == pytest.approx(np.std(plain, 0, ddof=1)[k] / np.sqrt(2), rel=1e-2, abs=1e-3)


def test_processes_change_nothing_and_are_gone_afterwards(policy):
    policies = [policy, make_policy(1)]
    here = simulate_each(policies, POINT_RUN, 5, seed=1)
    assert here[0]["return"] != here[1]["return"]
    assert simulate_each(policies, POINT_RUN, 5, seed=1, workers=2) == here
    assert not multiprocessing.active_children()
    assert simulate(policy, POINT_RUN, 5, seed=2) != here[0]


def test_environments_are_few_at_a_time_and_closed(policy):
    Brief.now_open = Brief.most_open = 0
    truth = simulate(policy, awkward("Brief"), AT_ONCE + 10, discount=0.5)
    assert Brief.now_open == 0
    assert 10 <= Brief.most_open <= AT_ONCE
    assert (truth["return"], truth["cost"], truth["episodes"]) == (3, 6, AT_ONCE + 10)
    assert (truth["discounted_return"], truth["discounted_cost"], truth["discounted_cost_se"]) == (1.75, 3.5, 0)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Costless", r'gives no info\["cost"\]: wrap it'),
        ("Unbounded", "observations that are not finite"),
        ("Priceless", "a reward or cost that is not finite"),
        ("Priced", "a reward or cost that is not finite"),
    ],
)
def test_what_an_environment_lacks_is_said_and_it_is_closed(name, says, policy):
    Brief.now_open = 0
    with pytest.raises(UserError, match=says):
        simulate(policy, awkward(name), 3)
    assert Brief.now_open == 0


def test_predicting_step_by_step_is_the_policy_that_is_simulated():
    """Of many episodes side by side. With the same noise in every step the cost would be another."""
    policy, episodes = make_policy(), 2000
    truth = simulate(policy, "point-run", episodes, seed=1)
    keys = jax.random.split(jax.random.key(2), (RUN.horizon + 1, episodes))
    step, states = jax.jit(jax.vmap(RUN.step)), jax.vmap(RUN.reset)(keys[-1])
    sums = np.zeros((2, episodes))
    policy.seed(3)
    for t in range(RUN.horizon):
        after = step(keys[t], states, policy.predict(states))
        assert not after.terminated.any()
        sums += [after.reward, after.cost]
        states = after.state
    assert truth["cost"] > 1
    for name, values in zip(("return", "cost"), sums, strict=True):
        error = np.hypot(truth[f"{name}_se"], values.std(ddof=1) / np.sqrt(episodes))
        assert abs(values.mean() - truth[name]) < 3 * error


def spoilt(value):
    """A policy whose units turn every action into `value`."""
    policy = make_policy()
    units = policy.params.units._replace(action_shift=np.full(2, value, np.float32))
    return Policy(policy.actor, policy.params._replace(units=units), policy.about)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("env", ["point-run", POINT_RUN])
def test_actions_that_are_not_finite_are_an_error_and_cost_not_nothing(env, value):
    with pytest.raises(UserError, match=r"actions.* not finite"):
        simulate(spoilt(value), env, 2)


@pytest.mark.parametrize("what", ["reward", "cost"])
def test_a_return_or_a_cost_that_is_not_finite_is_an_error(what):
    def step(key, state, action):
        after = RUN.step(key, state, action)
        return after._replace(**{what: jnp.where(after.state[0] > 0, jnp.nan, 0.0)})

    with pytest.raises(UserError, match=r"point-run .* not finite"):
        evaluate(replace(RUN, step=step), driver, None, jax.random.key(0), 4)


@pytest.mark.parametrize("env", ["point-run", POINT_RUN])
def test_a_policy_of_another_shape_is_refused(env):
    with pytest.raises(UserError, match=r"observations have shape \(4,\), those of .* \(3,\): choose another --env"):
        simulate(make_policy(observations=4), env, 2)


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("StuckAndCostless", UserError, "wrap it so that every step does"),
        ("StuckAndDead", UserError, "died: --workers 1 shows why"),
        ("StuckTwice", KeyboardInterrupt, None),
    ],
)
def test_an_error_a_death_and_ctrl_c_end_a_process_that_is_stuck(name, error, says, policy, tmp_path, monkeypatch):
    monkeypatch.setenv(DIRECTORY, str(tmp_path))

    def press_ctrl_c():
        while not (tmp_path / "stuck").exists():
            time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    try:
        if error is KeyboardInterrupt:
            threading.Thread(target=press_ctrl_c, daemon=True).start()
        with pytest.raises(error, match=says):
            simulate(policy, awkward(name), 2, workers=2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not multiprocessing.active_children()


def driver(params, key, state):
    return RUN.controller(0.6, state)


def test_discounted_sums_of_a_task_are_those_of_its_process():
    """By steps one after another, in double precision: the discounted sums run on after the horizon."""
    discount, key, episodes = 0.95, jax.random.key(5), 3
    steps = discounted_steps(discount)
    assert RUN.horizon < steps == 180
    step = jax.jit(RUN.step)
    slow = np.zeros((episodes, 4))
    for i in range(episodes):
        start_key, steps_key = jax.random.split(jax.random.fold_in(key, i))
        state = RUN.reset(start_key)
        keys = jax.random.split(steps_key, steps)
        assert (keys[: RUN.horizon] == jax.random.split(steps_key, RUN.horizon)).all()  # so it begins as a short run
        for t, step_key in enumerate(keys):
            after = step(jax.random.split(step_key)[1], state, driver(None, None, state))
            earned = np.array([after.reward, after.cost], float)
            slow[i] += np.concatenate([earned * (t < RUN.horizon), discount**t * earned])
            state = after.state
    truth = evaluate(RUN, driver, None, key, episodes, discount)
    np.testing.assert_allclose(truth[::2], slow.mean(0), rtol=1e-3)
    np.testing.assert_allclose(truth[1::2], slow.std(0, ddof=1) / np.sqrt(episodes), rtol=2e-2, atol=1e-3)


def forward_at_full_push(params, key, state):
    return jnp.array([1.0, 0.0])


def test_a_timeout_does_not_end_the_discounted_sum():
    """At full push all steps but the first few cost 1: most of 1/(1-γ) = 100, of which 63 lie before the horizon."""
    truth = evaluate(RUN, forward_at_full_push, None, jax.random.key(0), 50, 0.99)
    assert RUN.horizon - 20 < truth.episode_cost <= RUN.horizon
    before_horizon = (1 - 0.99**RUN.horizon) / (1 - 0.99)
    assert before_horizon + 15 < truth.discounted_cost < 100


@pytest.mark.parametrize(("discount", "steps"), [(0.99, 917), (0.9, 88), (0.0, 1)])
def test_a_discounted_sum_is_long_enough(discount, steps):
    assert discounted_steps(discount) == steps
    assert discount**steps <= 1e-4


def test_a_discount_of_one_has_no_such_sum():
    with pytest.raises(UserError, match=r"the discount must be in \[0, 1\), got 1"):
        evaluate(RUN, driver, None, jax.random.key(0), 2, 1.0)
