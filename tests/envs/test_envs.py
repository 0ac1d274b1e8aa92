import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from corsdice import data
from corsdice.cli import main
from corsdice.envs import TASKS, collect, evaluate, rollout, task_by_name
from corsdice.envs.points import POINTS
from corsdice.errors import UserError

every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
every_point = pytest.mark.parametrize("task", POINTS, ids=lambda task: task.name)


def still(actions):
    return lambda params, key, state: jnp.zeros(actions)


@every_point
def test_scripted_drivers_span_safe_and_slow_to_fast_and_costly(task):
    dataset = data.check(collect(task, seed=0, episodes=400), action_bounds=(-1, 1))
    episodes = dataset.episodes
    assert len(episodes.starts) == 400
    assert episodes.lengths.max() == task.horizon
    # by step: on the ridge a fast driver's episode is short
    earned, cost = (np.array_split(episodes.sums(v) / episodes.lengths, 4) for v in (dataset.rewards, dataset.costs))
    assert earned[0].mean() < earned[1].mean() < earned[2].mean()
    assert earned[3].mean() > 1.5 * earned[0].mean()
    assert cost[0].mean() < 0.1
    assert cost[3].mean() > 0.4
    np.testing.assert_array_equal(dataset.actions, collect(task, seed=0, episodes=400).actions)
    assert (dataset.actions[:100] != collect(task, seed=1, episodes=400).actions[:100]).any()


def test_only_the_ridge_ends_early_and_more_so_for_the_reckless():
    for task in POINTS:
        dataset = collect(task, episodes=400)
        fell = dataset.terminals[dataset.episodes.stops - 1]
        if task.name != "point-ridge":
            assert not fell.any()
            continue
        assert fell[:100].mean() < 0.05
        assert fell[-100:].mean() > 0.4
        assert not (dataset.terminals & dataset.timeouts).any()
        height = np.abs(dataset.next_observations[:, 0])
        np.testing.assert_array_equal(dataset.terminals, height > 0.5)


@every_task
def test_a_rollout_agrees_with_stepping_by_hand(task):
    key = jax.random.key(3)
    run = rollout(task, still(task.action_size), None, key, 2)
    start_key, steps_key = jax.random.split(jax.random.fold_in(key, 1))
    state = task.reset(start_key)
    for t, step_key in enumerate(jax.random.split(steps_key, task.horizon)[:5]):
        np.testing.assert_allclose(run.observations[1, t], state, rtol=1e-5, atol=1e-6)
        after = task.step(jax.random.split(step_key)[1], state, jnp.zeros(task.action_size))
        np.testing.assert_allclose(run.rewards[1, t], after.reward, rtol=1e-5, atol=1e-6)
        state = after.state


def test_more_episodes_begin_with_the_same_ones():
    task = task_by_name("point-run")
    few, many = (rollout(task, still(2), None, jax.random.key(0), n) for n in (2, 5))
    np.testing.assert_array_equal(few.rewards, many.rewards[:2])


def test_nothing_counts_after_a_fall():
    """A policy that walks off the ridge at once: its return is that of the steps it lived, discounted or not."""
    task = task_by_name("point-ridge")

    def off(params, key, state):
        return jnp.array([0.0, 1.0])

    run = rollout(task, off, None, jax.random.key(0), 50)
    assert (run.lived.sum(-1) < 20).all()
    truth = evaluate(task, off, None, jax.random.key(0), 50, discount=0.99)
    sums = np.where(run.lived, run.rewards, 0.0).sum(-1)
    assert truth.episode_return == pytest.approx(sums.mean(), abs=1e-4)
    assert truth.episode_return_se == pytest.approx(sums.std(ddof=1) / np.sqrt(50), rel=1e-3)
    discounted = (np.where(run.lived, run.rewards, 0.0) * 0.99 ** np.arange(task.horizon)).sum(-1)
    assert truth.discounted_return == pytest.approx(discounted.mean(), abs=1e-4)


def test_the_circle_rewards_running_round_it_and_its_walls_cost():
    task = task_by_name("point-circle")
    quiet = jax.random.key(0)
    for state, expected in (
        ([2.0, 0.0, 0.0, 1.0], 1),  # on the circle, anticlockwise
        ([2.0, 0.0, 0.0, -1.0], -1),  # the wrong way
        ([0.0, 2.0, -1.0, 0.0], 1),
        ([0.0, 0.5, -1.0, 0.0], 1 / 2.5),  # 1.5 off the circle
    ):
        after = task.step(quiet, jnp.array(state), jnp.array(state[2:]) * 0.8 / 3)  # keeps the speed against the drag
        assert after.reward == pytest.approx(expected, abs=0.35)
        assert after.cost == float(abs(after.state[0]) > 1.2)


@every_task
def test_the_gymnasium_environments_pass_its_own_check(task):
    env = gymnasium.make(f"corsdice.envs.gym:corsdice/{task.name}-v0")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*A Box observation space m.* is -?infinity")  # it has no bounds
        check_env(env.unwrapped, skip_render_check=True)
    observation, _ = env.reset(seed=1)
    again, _ = env.reset(seed=1)
    np.testing.assert_array_equal(observation, again)
    for _ in range(task.horizon):
        _, _, terminated, truncated, info = env.step(np.zeros(task.action_size, np.float32))
        assert info["cost"] >= 0.0
        if terminated:
            break
    assert terminated or truncated
    env.close()


def test_the_battery_is_of_four_kinds_of_people_whom_no_column_names():
    """By the clock, by the price with a reserve, by the price alone, and by need: only the second keeps the reserve."""
    logs = data.check(collect(task_by_name("home-battery"), 0, 400), action_bounds=(-1, 1))
    cost = [part.mean() for part in np.array_split(logs.episodes.sums(logs.costs), 4)]
    assert logs.timeouts.sum() == 400
    assert not logs.terminals.any()
    assert cost[1] < 3 < 10 < min(cost[0], cost[2], cost[3])
    np.testing.assert_array_equal(logs.costs, logs.next_observations[:, 0] < 0.3)


def test_days_of_dispatch_all_end_and_what_is_not_served_is_rare_and_dear():
    logs = data.check(collect(task_by_name("dispatch"), 0, 400), action_bounds=(-1, 1))
    assert set(logs.episodes.lengths) == {24}
    assert logs.terminals.sum() == 400
    assert not logs.timeouts.any()
    careful, reckless = (logs.costs[: 24 * 100], logs.costs[-24 * 100 :])
    assert (careful > 0).mean() < 0.1 < 0.4 < (reckless > 0).mean()
    np.testing.assert_allclose(logs.rewards, -logs.next_observations[:, 4] - 4 * logs.costs, rtol=1e-4, atol=1e-4)


def test_make_by_command(tmp_path, capsys):
    target = tmp_path / "ridge.hdf5"
    assert main(["data", "make", "point-ridge", str(target), "--episodes", "20"]) == 0
    assert "in 20 episodes" in capsys.readouterr().out
    assert main(["data", "check", str(target), "--action-bounds", "-1", "1"]) == 0
    assert main(["data", "make", "point-rdge", str(tmp_path / "x.npz")]) == 2
    assert "choose one of point-circle, point-run, point-ridge" in capsys.readouterr().err


def test_unknown_tasks_are_named():
    with pytest.raises(UserError, match="unknown task 'nowhere'"):
        task_by_name("nowhere")
