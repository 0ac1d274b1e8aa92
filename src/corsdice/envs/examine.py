"""Which simulators work on this machine: each task is really reset and stepped, each suite in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np

from corsdice.data.dsrl import DSRL_TASKS, find_dsrl_task

STEPS = 10
PACKAGES = {
    "bullet": ("bullet-safety-gym", "pybullet"),
    "safety-gymnasium": ("safety-gymnasium", "mujoco"),
    "metadrive": ("metadrive-simulator",),
    "mujoco": ("mujoco",),
}
"""What the tasks of a suite come from, physics included."""
VELOCITY_IDS = tuple(
    f"corsdice.envs.mujoco:corsdice/{body}Velocity-v0" for body in ("Hopper", "Walker2d", "HalfCheetah")
)
"""Named here, since the module that has them cannot be imported where Gymnasium is missing."""


class Finding(NamedTuple):
    task: str
    suite: str
    problem: str | None
    """Why it does not work; None if it does."""
    seconds_to_reset: float | None = None
    steps_a_second: float | None = None


def tasks_of(suite: str) -> list[str]:
    if suite == "mujoco":
        return list(VELOCITY_IDS)
    return [task.task for task in DSRL_TASKS.values() if task.suite == suite]


def versions(suite: str) -> dict[str, str | None]:
    """Of the packages of a suite; None for one that is not installed."""
    found: dict[str, str | None] = {}
    for package in PACKAGES[suite]:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def simulator_versions() -> dict[str, str]:
    """Of every package here that moves bodies."""
    found = {name: number for suite in PACKAGES for name, number in versions(suite).items()}
    return {name: number for name, number in found.items() if number is not None}


def examine(suite: str, tasks: Sequence[str]) -> Iterator[Finding]:
    """One finding for each task. A simulator that takes its process down with it is a finding too."""
    pool = ProcessPoolExecutor(1, get_context("spawn"))
    try:
        for task in tasks:
            try:
                yield pool.submit(try_out, suite, task).result()
            except BrokenProcessPool:
                yield Finding(task, suite, "its process died")
                pool = ProcessPoolExecutor(1, get_context("spawn"))
    finally:
        pool.shutdown()


def try_out(suite: str, task: str) -> Finding:
    from corsdice.envs.simulators import make

    try:
        begun = time.perf_counter()
        with closing(make(task)) as env:
            observation, _ = env.reset(seed=0)
            ready = time.perf_counter()
            if known := find_dsrl_task(task):
                _check_size("observations", observation.shape, known.obs_dim)
                _check_size("actions", env.action_space.shape, known.act_dim)
            env.action_space.seed(0)
            for _ in range(STEPS):
                observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
                if not np.isfinite([*np.ravel(observation), reward, info["cost"]]).all():
                    raise ValueError("a step gives numbers that are not finite")
                if terminated or truncated:
                    env.reset()
            seconds = time.perf_counter() - ready
    except Exception as error:  # whatever a simulator may raise is what the user wants to read
        return Finding(task, suite, f"{type(error).__name__}: {error}".splitlines()[0])
    return Finding(task, suite, None, ready - begun, STEPS / seconds)


def _check_size(what: str, shape: tuple[int, ...] | None, size: int) -> None:
    if shape != (size,):
        raise ValueError(f"{what} have shape {shape}, in DSRL ({size},)")
