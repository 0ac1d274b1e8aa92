"""D4RL's files and scores, logs made here in its grades, and the nine-task table on small files."""

import csv
import json
from dataclasses import replace

import gymnasium
import h5py
import numpy as np
import pytest

from corsdice import data
from corsdice.cli import main
from corsdice.data.d4rl import D4RL_TASKS, ROBOTS, robot_of
from corsdice.data.split import split
from corsdice.envs.grades import MEDIUM, medium_place
from corsdice.envs.mujoco import velocity_task
from corsdice.errors import UserError
from corsdice.experiments.d4rl import AVERAGE, COLUMNS, make_logs, plan_for, summarise
from corsdice.experiments.d4rl_config import D4rlTableConfig
from corsdice.experiments.published import published_d4rl_scores

SMALL = ["--steps", "10", "--widths", "8", "--batch-size", "16", "--seeds", "2", "--episodes", "2", "--workers", "1"]


def write_d4rl_file(path, arrays):
    """As D4RL lays a file out, with what nobody here reads."""
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
        file["infos/action_log_probs"] = np.zeros(len(arrays["rewards"]))
        file["infos/qpos"] = np.zeros((len(arrays["rewards"]), 6))
        file["metadata/algorithm"] = "SAC"
        file["metadata/policy/fc0/weight"] = np.zeros((4, 4))
    return path


def hopper_steps(episodes=4, cut_after=12):
    """Random episodes of a hopper, each cut off unless it has fallen before: D4RL's arrays."""
    env = gymnasium.make(velocity_task("hopper").id)
    env.action_space.seed(0)
    rows = []
    for episode in range(episodes):
        observation, _ = env.reset(seed=episode)
        for step in range(cut_after):
            action = env.action_space.sample()
            following, reward, terminated, _, _ = env.step(action)
            rows.append((observation, action, reward, terminated, step == cut_after - 1))
            observation = following
            if terminated:
                break
    env.close()
    names = ("observations", "actions", "rewards", "terminals", "timeouts")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


@pytest.fixture(scope="module")
def hopper_file(tmp_path_factory):
    return write_d4rl_file(tmp_path_factory.mktemp("given") / "hopper.hdf5", hopper_steps())


# Scores.


def test_scores_are_d4rls():
    assert list(ROBOTS) == ["hopper", "walker2d", "halfcheetah"]
    for name, random, expert in (
        ("hopper", -20.272305, 3234.3),
        ("walker2d", 1.629008, 4592.3),
        ("halfcheetah", -280.178953, 12135.0),
    ):
        assert ROBOTS[name].score(random) == 0
        assert ROBOTS[name].score(expert) == pytest.approx(100)
        assert ROBOTS[name].score((random + expert) / 2) == pytest.approx(50)


def test_every_robot_is_the_one_that_is_simulated():
    for robot in ROBOTS.values():
        env = gymnasium.make(velocity_task(robot.name).id)
        assert env.observation_space.shape == (robot.observation_size,)
        assert env.action_space.shape == (robot.action_size,)
        env.close()


def test_the_published_table_has_all_tasks():
    published = published_d4rl_scores()
    assert {task for task, _ in published} == set(D4RL_TASKS)
    assert {name for _, name in published} == {"semidice", "f-dvl", "odice", "sql", "optidice"}
    assert published["halfcheetah-medium-expert", "semidice"] == 93.03
    assert published["walker2d-medium-replay", "optidice"] == 17.9


# Files.


def test_a_file_of_d4rl_is_read_without_costs_and_successors(tmp_path):
    generator = np.random.default_rng(0)
    last = np.isin(np.arange(9), [3, 6, 8])
    arrays = {
        "observations": generator.normal(size=(9, 11)).astype(np.float32),
        "actions": generator.uniform(-1, 1, (9, 3)).astype(np.float32),
        "rewards": np.arange(9, dtype=np.float32),
        "terminals": last & (np.arange(9) == 6),
        "timeouts": last & (np.arange(9) != 6),
    }
    path = write_d4rl_file(tmp_path / "d4rl.hdf5", arrays)
    with pytest.raises(UserError, match="missing costs"):
        data.read(path)
    logs = data.check(data.read(path, needs_cost=False), needs_cost=False)
    assert logs.rewards.tolist() == [0, 1, 2, 4, 5, 6, 7]  # rows 3 and 8 timed out: nobody knows what followed
    assert np.flatnonzero(logs.timeouts).tolist() == [2, 6]
    assert np.flatnonzero(logs.terminals).tolist() == [5]
    np.testing.assert_array_equal(logs.next_observations[[2, 4, 6]], arrays["observations"][[3, 6, 8]])
    np.testing.assert_array_equal(logs.costs, np.zeros(7, np.float32))


def test_successors_that_the_file_has_are_kept_and_nothing_left_out(tmp_path):
    arrays = hopper_steps(2)
    arrays["next_observations"] = np.concatenate([arrays["observations"][1:], np.ones((1, 11))])
    logs = data.read(write_d4rl_file(tmp_path / "d4rl.hdf5", arrays), needs_cost=False)
    assert logs.transitions == len(arrays["rewards"])
    assert (logs.next_observations[-1] == 1).all()


# Grades.


def test_medium_is_a_share_of_the_way_to_the_final_return():
    returns = [float("nan"), float("nan"), 10.0, 20.0, 10 + 90 * MEDIUM, 90.0, 100.0]
    assert medium_place(returns) == 4
    assert medium_place([5.0, 4.0, 3.0]) == 0  # one that learned nothing
    with pytest.raises(UserError, match="train it for more steps"):
        medium_place([float("nan")])


def test_grades_are_made_once_by_one_agent(tmp_path):
    config = D4rlTableConfig(collect_steps=4096, collect_transitions=300, collect_snapshots=2)
    make_logs(config, tmp_path, ["hopper-medium"])
    files = sorted((tmp_path / "data").iterdir())
    assert {path.stem for path in files} == {task for task in D4RL_TASKS if robot_of(task).name == "hopper"}
    for path in files:
        logs = data.check(data.read(path), needs_cost=False)
        assert logs.transitions >= 300
        assert data.provenance(path)["source"] == "made by corsdice"
    written = [path.stat().st_mtime_ns for path in files]
    make_logs(config, tmp_path, ["hopper-medium", "hopper-medium-replay"])
    assert [path.stat().st_mtime_ns for path in files] == written
    with pytest.raises(UserError, match="was made with other --collect options"):
        make_logs(replace(config, collect_transitions=400), tmp_path, ["hopper-medium"])


# The table.


def test_alpha_is_in_the_unit_of_the_raw_reward_and_beta_for_those_that_have_it(hopper_file):
    logs = data.read(hopper_file, needs_cost=False)
    config = D4rlTableConfig(alpha=2.0, beta=0.7)
    plans = {name: plan_for(config, name, logs) for name in config.algorithms}
    for plan in plans.values():
        parts = split(logs, plan.holdout)
        assert len(parts.held_out.episodes.starts) == 2
        assert plan.members[0].alpha == pytest.approx(2 * 0.01 / parts.train.rewards.std())
        assert plan.horizon == 1000
    assert plans["f-dvl"].config.balance == plans["odice"].config.balance == 0.7
    assert plans["semidice"].config.balance == plans["sql"].config.balance == 0.5
    assert plans["semidice"].config.estimate == "none"


def policy(task, algorithm, seed, score, failure=None):
    return {"task": task, "algorithm": algorithm, "seed": seed, "score": score, "failure": failure}


def test_means_errors_and_averages_by_hand():
    first, second = "hopper-medium", "walker2d-medium"
    policies = [policy(first, "semidice", 0, 50.0), policy(first, "semidice", 1, 54.0)]
    policies += [policy(second, "semidice", 0, 80.0), policy(second, "semidice", 1, 86.0)]
    policies += [
        policy(first, "xql", 0, 10.0),
        policy(first, "xql", 1, None, "stopped"),
        policy(second, "xql", 0, None),
    ]
    rows = {(row["task"], row["algorithm"]): row for row in summarise(policies)}
    assert (rows[first, "semidice"]["score"], rows[first, "semidice"]["score_se"]) == (52, pytest.approx(2))
    mean = rows[AVERAGE, "semidice"]
    assert (mean["score"], mean["score_se"]) == (67.5, pytest.approx((2**2 + 3**2) ** 0.5 / 2))
    assert mean["published"] == pytest.approx((66.2 + 83.4) / 2)
    assert (rows[first, "xql"]["score"], rows[first, "xql"]["score_se"], rows[first, "xql"]["seeds"]) == (10, None, 1)
    assert rows[second, "xql"]["score"] is rows[AVERAGE, "xql"]["score"] is rows[AVERAGE, "xql"]["published"] is None


def test_a_table_on_given_files_that_is_not_done_twice(hopper_file, tmp_path, capsys):
    out, tasks = tmp_path / "d4rl", ("hopper-medium", "hopper-medium-replay")
    command = ["reproduce", "d4rl", "--out", str(out), "--tasks", *tasks, "--algorithms", "odice", *SMALL]
    command += ["--data", *(f"{task}={hopper_file}" for task in tasks)]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "In brackets: as published, on D4RL's data." in shown
    assert "(86.1)" in shown
    with (out / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [(row["task"], row["seed"]) for row in rows] == [(task, seed) for task in tasks for seed in "01"]
    for row in rows:
        assert float(row["score"]) == pytest.approx(ROBOTS["hopper"].score(float(row["return"])))
    summary = json.loads((out / "summary.json").read_text())
    assert [(row["task"], row["published"]) for row in summary] == [
        *zip(tasks, (86.1, 99.9), strict=True),
        (AVERAGE, 93),
    ]
    kept, lost = (out / "cells" / task / "odice.json" for task in tasks)
    before = kept.stat().st_mtime_ns, lost.read_text()
    lost.unlink()
    assert main(command) == 0
    assert (kept.stat().st_mtime_ns, lost.read_text()) == before
    assert not (out / "data").exists()
    capsys.readouterr()
    assert main([*command, "--alpha", "2"]) == 2
    assert "choose another --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--tasks", "ant-medium"), "hopper-medium"),
        (("--algorithms", "corsdice"), "semidice"),
        (("--tasks", "hopper-medium", "hopper-medium"), "none twice"),
        (("--data", "hopper-medium"), "task=file"),
        (("--data", "hopper=logs.hdf5"), "one of --tasks"),
        (("--data", "hopper-medium=nowhere.hdf5"), "no file nowhere.hdf5: check --data"),
        (("--beta", "1"), "--beta must lie strictly between 0 and 1"),
        (("--episodes", "1"), "--episodes must be at least 2"),
    ],
)
def test_mistakes_are_told_in_one_line_before_anything_starts(options, says, tmp_path, capsys):
    assert main(["reproduce", "d4rl", "--out", str(tmp_path), *options]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_logs_of_another_robot_are_refused_before_training(hopper_file, tmp_path, capsys):
    given = ["--tasks", "walker2d-medium", "--data", f"walker2d-medium={hopper_file}"]
    assert main(["reproduce", "d4rl", "--out", str(tmp_path), *given]) == 2
    assert "walker2d has 17 and 6" in capsys.readouterr().err
