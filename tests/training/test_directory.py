"""A run on disk: what it writes, and that no way of stopping it loses or changes anything."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from corsdice import data, envs, files
from corsdice.algorithms import bc
from corsdice.data.split import split
from corsdice.errors import UserError
from corsdice.training import directory
from corsdice.training.run import Trainer, plan_of

LIMIT = 40.0
SMALL = {"steps": 40, "widths": (8,), "batch_size": 16}


@pytest.fixture(scope="module")
def logs():
    return envs.collect(envs.TASKS["point-run"], 0, 20)


def small_plan(logs, algorithm="bc-all", options=None, **changes):
    settings = {"seeds": 2, "chunk": 10, "mode": "map"} | changes
    return plan_of(algorithm, logs, [LIMIT], options=SMALL | (options or {}), **settings)


def files_of(run):
    """Everything that a run promises, by name: bytes, and of the checkpoint what it holds.

    Its bytes may differ, because safetensors writes the metadata in no particular order.
    """
    learned = [*run.glob(f"{directory.POLICIES}/*"), *run.glob(f"{directory.FAMILY}.*")]
    assert learned
    kept = [run / directory.DESCRIPTION, run / directory.METRICS, *sorted(learned)]
    checkpoint = run / directory.CHECKPOINT
    tensors = {name: (array.dtype, array.shape, array.tobytes()) for name, array in load_file(checkpoint).items()}
    held = {"tensors": tensors, "metadata": files.read_tensors_metadata(checkpoint)}
    return {path.name: path.read_bytes() for path in kept} | {"checkpoint": held}


def checkpoint_step(run):
    return int(files.read_tensors_metadata(run / directory.CHECKPOINT)["step"])


def stop_at(step):
    def progress(now, rows, fresh):
        if now == step:
            raise KeyboardInterrupt

    return progress


def assert_one_line(error, *parts):
    message = str(error.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_a_run_writes_what_it_promises_and_its_policies_act(logs, tmp_path):
    plan = small_plan(logs)
    outcome = directory.train(tmp_path, plan, logs, "the logs")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"run.json", "metrics.jsonl", "checkpoint.safetensors", "policies", "tensorboard"}
    assert any((tmp_path / "tensorboard").iterdir())

    content = directory.description(tmp_path)
    assert content["algorithm"] == "bc-all"
    assert content["config"]["steps"] == 40
    assert [(m["seed"], m["cost_limit"]) for m in content["members"]] == [(0, LIMIT), (1, LIMIT)]
    assert content["horizon"] == envs.TASKS["point-run"].horizon
    assert content["data"]["source"] == "the logs"
    assert len(content["data"]["sha256"]) == 64
    assert {"corsdice", "python", "jax", "numpy"} <= content["versions"].keys()

    rows = directory.read_metrics(tmp_path)
    assert [(row["step"], row["member"]) for row in rows] == [(s, m) for s in (10, 20, 30, 40) for m in (0, 1)]
    assert outcome.done
    assert checkpoint_step(tmp_path) == 40
    assert directory.failures(tmp_path) == {}

    policies = directory.load_policies(tmp_path)
    assert list(policies) == [member.name for member in plan.members]
    assert [policy.about["seed"] for policy in policies.values()] == [0, 1]
    for index, policy in enumerate(policies.values()):
        actions = policy.seed(0).predict(logs.observations[:5])
        assert actions.shape == logs.actions[:5].shape
        np.testing.assert_array_equal(actions, outcome.policy(index).seed(0).predict(logs.observations[:5]))
    loaded = directory.load_outcome(tmp_path, split(logs, plan.holdout).judge)
    assert loaded.step == 40
    jax.tree.map(np.testing.assert_array_equal, loaded.states, outcome.states)


@pytest.mark.parametrize("algorithm", ["bc-all", "corsdice"])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(algorithm, logs, tmp_path):
    plan = small_plan(logs, algorithm)
    directory.train(tmp_path / "straight", plan, logs, "memory")
    for step in (10, 30):
        with pytest.raises(KeyboardInterrupt):
            directory.train(tmp_path / "stopped", plan, logs, "memory", stop_at(step))
        assert checkpoint_step(tmp_path / "stopped") == step
    told = []
    directory.train(tmp_path / "stopped", plan, logs, "memory", lambda step, rows, fresh: told.append((step, fresh)))
    assert told == [(30, 30), (40, 10)]
    assert files_of(tmp_path / "stopped") == files_of(tmp_path / "straight")


def test_a_finished_run_stays_as_it_is(logs, tmp_path):
    plan = small_plan(logs)
    directory.train(tmp_path, plan, logs, "memory")
    before = files_of(tmp_path)
    directory.train(tmp_path, plan, logs, "memory")
    assert files_of(tmp_path) == before


def test_metrics_that_the_checkpoint_does_not_know_are_dropped(logs, tmp_path):
    """As a kill between the metrics and the checkpoint, or in the middle of a line, leaves them."""
    plan = small_plan(logs)
    directory.train(tmp_path / "straight", plan, logs, "memory")
    with pytest.raises(KeyboardInterrupt):
        directory.train(tmp_path / "killed", plan, logs, "memory", stop_at(20))
    lines = (tmp_path / "straight" / "metrics.jsonl").read_text().splitlines(keepends=True)
    with (tmp_path / "killed" / "metrics.jsonl").open("a") as file:
        file.write(lines[4] + lines[5][:17])
    assert len(directory.read_metrics(tmp_path / "killed")) == 5
    directory.train(tmp_path / "killed", plan, logs, "memory")
    assert files_of(tmp_path / "killed") == files_of(tmp_path / "straight")


def test_metrics_from_before_the_first_checkpoint_are_dropped(logs, tmp_path):
    """A kill after the first chunk's metrics and before its checkpoint: the run starts again, and so do its metrics."""
    plan = small_plan(logs)
    directory.train(tmp_path / "straight", plan, logs, "memory")
    with pytest.raises(KeyboardInterrupt):
        directory.train(tmp_path / "killed", plan, logs, "memory", stop_at(10))
    (tmp_path / "killed" / "checkpoint.safetensors").unlink()
    directory.train(tmp_path / "killed", plan, logs, "memory")
    assert files_of(tmp_path / "killed") == files_of(tmp_path / "straight")


def test_resuming_with_other_data_is_refused(logs, tmp_path):
    plan = small_plan(logs)
    directory.train(tmp_path, plan, logs, "first.hdf5")
    before = files_of(tmp_path)
    other = logs._replace(rewards=logs.rewards + np.float32(1))
    with pytest.raises(UserError) as error:
        directory.train(tmp_path, plan, other, "second.hdf5")
    assert_one_line(error, "other data", "first.hdf5", "--out")
    assert files_of(tmp_path) == before


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"options": {"batch_size": 32}}, "batch_size (16, now 32)"),
        ({"options": {"widths": (4, 4)}}, "widths ([8], now [4, 4])"),
        ({"settings": {"learning_rate": 0.5}}, "learning_rate (None, now 0.5)"),
        ({"algorithm": "bc-safe"}, "algorithm (bc-all, now bc-safe)"),
        ({"seeds": 3}, "members"),
        ({"chunk": 20}, "chunk (10, now 20)"),
        ({"holdout": 0.5}, "holdout (0.2, now 0.5)"),
    ],
)
def test_resuming_with_another_plan_is_refused_and_names_the_difference(changes, named, started, logs):
    before = files_of(started)
    with pytest.raises(UserError) as error:
        directory.train(started, small_plan(logs, **changes), logs, "memory")
    assert_one_line(error, named, "--out")
    assert files_of(started) == before


@pytest.fixture(scope="module")
def started(logs, tmp_path_factory):
    run = tmp_path_factory.mktemp("started") / "run"
    directory.train(run, small_plan(logs), logs, "memory")
    return run


def test_a_directory_with_other_things_in_it_is_refused(logs, tmp_path):
    (tmp_path / "thesis.tex").write_text("all of it")
    with pytest.raises(UserError) as error:
        directory.train(tmp_path, small_plan(logs), logs, "memory")
    assert_one_line(error, "not empty", "--out")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "is not a run"), ("{", "damaged"), ("[]", "not written by"), ('{"corsdice_run": 99}', "not written by")],
)
def test_what_is_no_run_is_said_in_one_line(content, says, tmp_path):
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(UserError) as error:
        directory.description(tmp_path)
    assert_one_line(error, says)


def test_a_damaged_checkpoint_is_said_in_one_line(logs, tmp_path):
    plan = small_plan(logs)
    directory.train(tmp_path, plan, logs, "memory")
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError) as error:
        directory.train(tmp_path, plan, logs, "memory")
    assert_one_line(error, "checkpoint.safetensors")


def finite(policy):
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(policy.params))


def assert_same_policy(policy, other):
    jax.tree.map(np.testing.assert_array_equal, policy.params, other.params)


def test_a_member_that_fails_is_named_keeps_its_last_good_policy_and_disturbs_no_other(logs, tmp_path):
    """An α of 1e-30 overflows as soon as a critic differs from 0, after one update; the other goes on as if alone."""
    both = small_plan(logs, "semidice", seeds=1, alphas=[0.3, 1e-30])
    outcome = directory.train(tmp_path / "both", both, logs, "memory")
    assert outcome.failures.keys() == {1}
    assert outcome.failures[1].startswith("stopped at step 1: ")
    assert "nu_loss" in outcome.failures[1]
    assert directory.failures(tmp_path / "both") == outcome.failures
    rows = directory.read_metrics(tmp_path / "both")
    assert [row["member"] for row in rows] == [0, 0, 0, 0]
    assert all(np.isfinite(list(row.values())).all() for row in rows)

    good, failed = directory.load_policies(tmp_path / "both").values()
    assert finite(failed)
    assert np.isfinite(failed.predict(logs.observations[:3])).all()
    alone = directory.train(tmp_path / "alone", small_plan(logs, "semidice", seeds=1, alphas=[0.3]), logs, "memory")
    assert_same_policy(good, alone.policy(0))
    first = [{**row, "member": 0} for row in rows]
    assert first == directory.read_metrics(tmp_path / "alone")


@pytest.mark.parametrize(("broken", "good"), [(14, 10), (19, 10), (39, 30)])
def test_a_policy_is_the_last_good_one_wherever_in_a_chunk_it_breaks(broken, good, logs, tmp_path, monkeypatch):
    """In the middle of a chunk, in its last step, and in the last step of all, which no later loss can tell."""
    update = bc.update

    def breaking(config, hypers, logs, state, step, key):
        """Parameters turn to NaN at the step that a setting names which behaviour cloning has no use for."""
        state, metrics = update(config, hypers, logs, state, step, key)
        broken = step == hypers.multiplier.astype(int)
        return state._replace(params=jax.tree.map(lambda x: jnp.where(broken, jnp.nan, x), state.params)), metrics

    monkeypatch.setattr(bc, "update", breaking)
    options = {"batch_size": 19}  # no other test may find this program in a cache

    def plan(at):
        return small_plan(logs, options=options, seeds=1, settings={"multiplier": float(at)})

    undisturbed = Trainer(plan(-1), logs)
    while undisturbed.outcome.step < good:
        undisturbed.advance()
    outcome = directory.train(tmp_path, plan(broken), logs, "memory")
    assert outcome.failures.keys() == {0}
    (policy,) = directory.load_policies(tmp_path).values()
    assert_same_policy(policy, undisturbed.outcome.policy(0))
    assert finite(policy)


def test_a_run_ends_when_all_members_have_failed(logs, tmp_path):
    outcome = directory.train(
        tmp_path, small_plan(logs, seeds=1, settings={"learning_rate": float("inf")}), logs, "memory"
    )
    assert outcome.step == 10
    assert directory.read_metrics(tmp_path) == []
    assert all(map(finite, directory.load_policies(tmp_path).values()))


STEPS = 2000


@pytest.fixture(scope="module")
def log_file(logs, tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "run.npz"
    data.write(logs, path)
    return path


def command(log_file, out):
    small = ("--steps", str(STEPS), "--chunk", "10", "--widths", "8", "--batch-size", "16", "--population", "map")
    limit = ("--algorithm", "semidice", "--cost-limit", str(LIMIT), "--out", str(out))
    return [sys.executable, "-m", "corsdice", "train", str(log_file), *limit, *small]


def run_to_the_end(log_file, out):
    return subprocess.run(command(log_file, out), capture_output=True, text=True, timeout=300)


def stop_under_way(log_file, out, how, after=0.1):
    """Starts a run, waits for its first checkpoint and a little longer, and sends it a signal."""
    # Tests in the background of a shell ignore Ctrl-C, and what they start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        command(log_file, out),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    ) as process:
        deadline = time.monotonic() + 120
        while not (out / directory.CHECKPOINT).exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(after)
        process.send_signal(how)
        stdout, stderr = process.communicate(timeout=120)
    return process.returncode, stdout, stderr


@pytest.fixture(scope="module")
def undisturbed(log_file, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    done = run_to_the_end(log_file, out)
    assert done.returncode == 0, done.stderr
    return out


def visible(run):
    """Names of everything but the curves, whose files are named by the time, and what begins with a dot."""
    paths = (path.relative_to(run) for path in run.rglob("*"))
    return sorted(str(path) for path in paths if "tensorboard" not in path.parts and not path.name.startswith("."))


def test_a_killed_run_ends_as_one_that_was_not(log_file, undisturbed, tmp_path):
    out = tmp_path / "run"
    code, _, stderr = stop_under_way(log_file, out, signal.SIGKILL)
    assert code == -signal.SIGKILL, stderr
    assert 0 < checkpoint_step(out) < STEPS
    done = run_to_the_end(log_file, out)
    assert done.returncode == 0, done.stderr
    assert files_of(out) == files_of(undisturbed)
    assert visible(out) == visible(undisturbed)
    estimates = [json.loads((run / directory.ESTIMATES).read_text()) for run in (out, undisturbed)]
    assert estimates[0] == estimates[1]


def test_ctrl_c_keeps_what_was_learned_and_says_how_to_go_on(log_file, undisturbed, tmp_path):
    out = tmp_path / "run"
    code, _, stderr = stop_under_way(log_file, out, signal.SIGINT)
    assert code not in (0, -signal.SIGINT), stderr
    assert stderr.count("\n") == 1
    assert stderr.startswith("corsdice: stopped; what was learned is in ")
    assert "run the same command again to go on" in stderr
    assert 0 < checkpoint_step(out) < STEPS
    lines = (undisturbed / "metrics.jsonl").read_text()
    assert lines.startswith((out / "metrics.jsonl").read_text())
    assert not [path for path in Path(out).rglob(".*") if path.is_file()]
