import sys
import warnings

import gymnasium
import numpy as np
import pytest

from corsdice.envs.mujoco import HORIZON, VELOCITY_TASKS, velocity_task
from corsdice.errors import UserError

every_task = pytest.mark.parametrize("task", VELOCITY_TASKS.values(), ids=VELOCITY_TASKS)


@every_task
def test_a_step_faster_than_the_limit_costs_1(task):
    env = gymnasium.make(task.id)
    env.reset(seed=0)
    body = env.unwrapped
    for speed in (0.5, 1.5):  # of the limit, with slack for what one step changes
        velocity = body.init_qvel.copy()
        velocity[0] = speed * task.limit
        body.set_state(body.init_qpos, velocity)
        *_, info = env.step(np.zeros(env.action_space.shape))
        assert info["cost"] == float(info["x_velocity"] > task.limit) == float(speed > 1)
    env.close()


@every_task
def test_apart_from_the_cost_it_is_version_4(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where MuJoCo may log what it says of the plain one
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*-v4 is out of date")
        plain = gymnasium.make(f"{task.body}-v4")
    ours = gymnasium.make(task.id)
    np.testing.assert_array_equal(ours.reset(seed=3)[0], plain.reset(seed=3)[0])
    actions = np.random.default_rng(0).uniform(-1, 1, (30, *ours.action_space.shape))
    for action in actions:
        observation, reward, terminated, truncated, info = ours.step(action)
        expected, expected_reward, expected_terminated, *_ = plain.step(action)
        np.testing.assert_array_equal(observation, expected)
        assert (reward, terminated, truncated) == (expected_reward, expected_terminated, False)
        assert info["cost"] in (0.0, 1.0)
        if terminated:
            break
    ours.close()
    plain.close()


def end_of_an_episode(task):
    env = gymnasium.make(task.id)
    env.reset(seed=0)
    steps, terminated, truncated = 0, False, False
    while not (terminated or truncated):
        _, _, terminated, truncated, _ = env.step(np.ones(env.action_space.shape))
        steps += 1
    env.close()
    return steps, terminated, truncated


def test_a_fall_is_a_termination_and_the_time_limit_a_timeout():
    steps, *ends = end_of_an_episode(VELOCITY_TASKS["hopper"])
    assert steps < HORIZON
    assert ends == [True, False]
    assert end_of_an_episode(VELOCITY_TASKS["halfcheetah"]) == (HORIZON, False, True)


@every_task
def test_making_one_says_nothing_and_leaves_no_file(task, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    gymnasium.make(task.id).close()
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


def test_without_mujoco_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(UserError, match=r"mujoco is not installed: pip install 'corsdice\[mujoco\]'"):
        gymnasium.make(VELOCITY_TASKS["hopper"].id)


def test_unknown_tasks_are_named():
    with pytest.raises(UserError, match="unknown task 'ant': choose one of hopper, walker2d, halfcheetah"):
        velocity_task("ant")
