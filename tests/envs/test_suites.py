"""DSRL's simulators, really stepped where they are installed (`make sim`; CI does)."""

import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec

import numpy as np
import pytest

from corsdice.data.dsrl import DSRL_TASKS, dsrl_task, find_dsrl_task, normalised_cost
from corsdice.envs import make
from corsdice.envs.examine import try_out
from corsdice.envs.simulators import alone_in_its_process
from corsdice.errors import UserError

PACKAGES = {"bullet": "bullet_safety_gym", "safety-gymnasium": "safety_gymnasium", "metadrive": "metadrive"}
ALL = tuple(DSRL_TASKS.values())


def of_suite(suite):
    missing = find_spec(PACKAGES[suite]) is None
    return pytest.mark.skipif(missing, reason=f"{PACKAGES[suite]} is not installed")


one_of_each = pytest.mark.parametrize(
    "name",
    [
        pytest.param("BallRun", marks=of_suite("bullet")),
        pytest.param("HalfCheetahVelocity", marks=of_suite("safety-gymnasium")),
        pytest.param("PointGoal1", marks=of_suite("safety-gymnasium")),
        pytest.param("easysparse", marks=of_suite("metadrive")),
    ],
)


def play(name, seed, steps):
    with closing(make(name)) as env:
        rows = [env.reset(seed=seed)[0]]
        generator = np.random.default_rng(seed)
        for _ in range(steps):
            observation, reward, terminated, truncated, info = env.step(
                generator.uniform(-1, 1, env.action_space.shape)
            )
            rows.append(np.append(observation, [reward, info["cost"], terminated, truncated]))
            if terminated or truncated:
                break
    return np.concatenate([np.ravel(row) for row in rows])


@one_of_each
def test_a_task_steps_and_its_seed_makes_it_repeatable(name):
    first = play(name, 5, 30)
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, play(name, 5, 30))
    other = play(name, 6, 30)
    assert first.shape != other.shape or (first != other).any()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("BallRun", marks=of_suite("bullet")),
        pytest.param("PointGoal1", marks=of_suite("safety-gymnasium")),
    ],
)
def test_the_horizon_truncates(name):
    task = dsrl_task(name)
    with closing(make(name)) as env:
        assert env.reset(seed=0)[0].shape == (task.obs_dim,)
        assert env.action_space.shape == (task.act_dim,)
        for step in range(1, task.horizon + 1):
            *_, terminated, truncated, _ = env.step(np.zeros(task.act_dim))
            assert truncated == (step == task.horizon)
            assert not terminated


@pytest.mark.slow
@pytest.mark.parametrize("task", [pytest.param(task, id=task.task, marks=of_suite(task.suite)) for task in ALL])
def test_every_task_steps(task):
    assert try_out(task.suite, task.task).problem is None


@of_suite("safety-gymnasium")
@pytest.mark.parametrize(
    ("name", "returned", "cost"),
    [
        # The first is the sum of DSRL's own stack (gymnasium 0.28.1, mujoco 2.3.3); the others guard ours.
        ("HalfCheetahVelocity", -55.641, 0),
        ("SwimmerVelocity", 24.280, 90),
        ("CarCircle2", 0.240, 47),
    ],
)
def test_the_physics_are_those_of_dsrl(name, returned, cost):
    with closing(make(name)) as env:
        env.reset(seed=0)
        env.action_space.seed(0)
        steps = [env.step(env.action_space.sample()) for _ in range(200)]
    assert sum(step[1] for step in steps) == pytest.approx(returned, abs=1e-3)
    assert sum(step[4]["cost"] for step in steps) == cost


@of_suite("metadrive")
def test_driving_costs_what_dsrl_says():
    with closing(make("easysparse")) as env:
        env.reset(seed=0)
        costs, speeds = [], []
        for _ in range(40):
            observation, _, terminated, _, info = env.step([0.0, 1.0])
            costs.append(info["cost"])
            near = max(0.0, 0.1 - observation[-240:].min())
            speeds.append(max(0.0, 0.01 * (info["velocity"] - 10)) + 0.01 * near**2)
            assert not terminated
    assert max(speeds) > 0
    np.testing.assert_allclose(costs, speeds, atol=1e-6)


@of_suite("metadrive")
def test_traffic_differs_between_episodes_and_is_repeatable():
    def cars(env, seed):
        env.reset(seed=seed)
        traffic = env.unwrapped.engine.traffic_manager
        blocks = traffic.block_triggered_vehicles
        return sorted(tuple(car.position) for block in blocks for car in traffic.get_objects(block.vehicles).values())

    with closing(make("easydense")) as env:
        seen = [cars(env, seed) for seed in (1, 2, 1)]
    assert len(seen[0]) > 5
    assert seen[0] == seen[2] != seen[1]


def test_a_missing_simulator_is_one_clear_line(monkeypatch):
    monkeypatch.setattr("corsdice.envs.suites.safety.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "safety_gymnasium", raising=False)
    with pytest.raises(UserError, match="safety-gymnasium is not installed: `make sim` installs the simulators"):
        make("PointGoal1")
    found = try_out("safety-gymnasium", "PointGoal1")
    assert found.problem.startswith("UserError: safety-gymnasium is not installed")


WITHOUT_SIMULATORS = """
import pkgutil, sys
from importlib import import_module
missing = ("bullet_safety_gym", "metadrive", "mujoco", "pybullet", "pybullet_envs", "safety_gymnasium")
sys.modules.update(dict.fromkeys(missing))  # importing one of them is now an ImportError
import corsdice.envs
for module in pkgutil.walk_packages(corsdice.envs.__path__, "corsdice.envs."):
    import_module(module.name)
for task in ("BallRun", "PointGoal1", "easysparse", "corsdice.envs.mujoco:corsdice/HopperVelocity-v0"):
    try:
        corsdice.envs.make(task)
    except corsdice.errors.UserError as error:
        print(error)
"""


def test_without_simulators_every_module_is_imported_and_each_says_what_installs_it():
    ran = subprocess.run([sys.executable, "-c", WITHOUT_SIMULATORS], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    bullet, safety, drive, walker = ran.stdout.splitlines()
    for said, package in ((bullet, "bullet_safety_gym"), (safety, "safety-gymnasium"), (drive, "metadrive")):
        assert said.startswith(package)
        assert said.endswith("is not installed: `make sim` installs the simulators")
    assert walker == "mujoco is not installed: pip install 'corsdice[mujoco]'"


def test_tasks_are_found_by_every_name():
    assert len(ALL) == 38
    assert find_dsrl_task("OfflineMetadrive-easysparse-v0") is DSRL_TASKS["easysparse"]
    assert find_dsrl_task("offlinecarbutton1gymnasium-v0") is DSRL_TASKS["CarButton1"]
    assert find_dsrl_task("SafetyBallCircle-v0") is DSRL_TASKS["BallCircle"]
    assert find_dsrl_task("SafetyAntVelocity-v1") is DSRL_TASKS["AntVelocity"]
    assert find_dsrl_task("point-circle") is None
    names = [name.lower() for task in ALL for name in task.names]
    assert len(set(names)) == len(names)
    with pytest.raises(UserError, match="`corsdice data list` shows the 38"):
        dsrl_task("BallRunn")


def test_what_dsrl_normalises():
    task = DSRL_TASKS["BallRun"]
    assert task.normalised_return(task.min_return) == 0
    assert task.normalised_return(task.max_return) == 1
    assert normalised_cost(30, 20) == 1.5
    assert normalised_cost(0, 0) == 1
    assert task.dataset_episodes == 940
    assert DSRL_TASKS["easysparse"].cost_limits == (10, 20, 40)


def test_only_metadrive_is_alone_in_its_process():
    assert [task.suite for task in ALL if alone_in_its_process(task.task)] == ["metadrive"] * 9


def test_embedded_tasks_and_factories_are_made_by_name():
    with closing(make("point-run")) as env:
        env.reset(seed=0)
        assert "cost" in env.step(np.zeros(2))[-1]
    with closing(make("awkward_envs:Brief")) as env:
        assert env.reset()[0].shape == (3,)
    with pytest.raises(UserError, match="gives str, not a gymnasium"):
        make("os:getcwd")
    with pytest.raises(UserError, match="cannot import nowhere:factory"):
        make("nowhere:factory")
    with pytest.raises(UserError, match="cannot make Nothing-v0"):
        make("Nothing-v0")
