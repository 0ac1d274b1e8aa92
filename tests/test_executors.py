"""Tables computed in other processes: the same numbers, whatever is killed on the way."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corsdice.errors import UserError
from corsdice.experiments.executors import execute
from corsdice.experiments.where import Where

DRIVER = Path(__file__).with_name("small_cells.py")
ENVIRONMENT = os.environ | {"RAY_AUTH_MODE": "disabled"}
"""Ray would leave a token in the home directory."""


def start(out, executor):
    return subprocess.Popen(
        [sys.executable, str(DRIVER), str(out), executor],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def finish(process, out):
    """What the cells have found."""
    told, wrong = process.communicate(timeout=300)
    assert process.returncode == 0, wrong
    assert sorted(json.loads(told.splitlines()[-1])) == ["bc-all", "bc-safe"]
    return {path.name: json.loads(path.read_text()) for path in out.glob("*.json")}


def tree(pid):
    """All processes that descend from one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int(re.search(r"^PPid:\s+(\d+)", (entry / "status").read_text(), re.M)[1])
                command = (entry / "cmdline").read_text()
            except (OSError, TypeError):
                continue
            found.append((int(entry.name), parent, command))
    below, fresh = {}, {pid}
    while fresh:
        fresh = {child for child, parent, _ in found if parent in fresh}
        below |= {child: command for child, _, command in found if child in fresh}
    return below


def kill_a_worker(process, out, title):
    """Kill -9, once it has learned something and is not done."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        workers = [pid for pid, command in tree(process.pid).items() if title in command]
        if workers and list(out.glob("*/checkpoint.safetensors")):
            os.kill(workers[0], signal.SIGKILL)
            assert not list(out.glob("*.json"))
            return
        time.sleep(0.01)
    raise AssertionError("no worker has learned anything")


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    out = tmp_path_factory.mktemp("here")
    found = finish(start(out, "here"), out)
    assert set(found) == {"bc-all.json", "bc-safe.json"}
    return found


def test_processes_give_the_same_numbers_though_one_is_killed(here, tmp_path):
    process = start(tmp_path, "processes")
    kill_a_worker(process, tmp_path, "multiprocessing.spawn")
    assert finish(process, tmp_path) == here


def test_ray_gives_the_same_numbers_though_a_worker_is_killed(here, tmp_path):
    pytest.importorskip("ray")
    process = start(tmp_path, "ray")
    kill_a_worker(process, tmp_path, "ray::work")
    assert finish(process, tmp_path) == here


class Numbered:
    """A cell that is its number."""

    logs = "none"

    def __init__(self, number):
        self.number = number


def load(cell):
    return 10


def die(cell, logs):
    os._exit(1)


def fail(cell, logs):
    raise UserError(f"cell {cell.number} of {logs} cannot be")


@pytest.mark.parametrize("executor", ["here", "processes"])
def test_a_users_mistake_is_told_as_it_is(executor):
    with pytest.raises(UserError, match="cell 3 of 10 cannot be"):
        list(execute(Where(executor, 1), [Numbered(3)], load, fail))


def test_a_cell_that_always_dies_is_given_up():
    with pytest.raises(UserError, match="--executor here shows why"):
        list(execute(Where("processes", 1), [Numbered(3)], load, die))


def test_an_address_without_ray_is_a_mistake():
    with pytest.raises(UserError, match="add --executor ray"):
        Where(address="127.0.0.1:6379")


def test_no_cluster_at_the_address_is_told_in_a_line(tmp_path):
    pytest.importorskip("ray")
    command = ("bench", "dsrl", "--tasks", "point-run", "--executor", "ray", "--address", "127.0.0.1:1")
    process = subprocess.run(
        [sys.executable, "-m", "corsdice", *command, "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=ENVIRONMENT,
    )
    assert process.returncode == 2
    told = process.stderr.splitlines()[-1]
    assert told == "corsdice: no Ray cluster at 127.0.0.1:1: start one with `ray start --head`"
