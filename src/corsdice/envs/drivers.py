"""Logs of scripted drivers in MetaDrive: its own expert and its intelligent-driver model, with noise, at many speeds.

MetaDrive is too slow to learn in by trial and error, and ships drivers that reach the goal. In DSRL's tasks speed
costs, so drivers from slow to fast, with hands from steady to shaking, cover cost and return as learners would. Each
episode has a driver of its own, by (seed, number) alone.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from corsdice import files
from corsdice.data.dataset import Dataset, concatenate
from corsdice.envs.errands import CHUNK, Errand, progress_of, save
from corsdice.envs.fleet import dataset_of, into_box, step
from corsdice.envs.simulators import make

SPEEDS = 15.0, 110.0
"""km/h that a driver may aim at; above 36 a step costs."""
SHAKING = 0.3
"""Largest deviation of the noise on an action; it forgets itself over about ten steps."""
EXPERTS = 0.2
"""Share of the episodes that MetaDrive's trained expert drives."""


class Driver(NamedTuple):
    expert: bool
    speed: float
    noise: float
    seed: int


def driver(seed: int, episode: int) -> Driver:
    generator = np.random.default_rng([seed, episode])
    return Driver(
        expert=bool(generator.random() < EXPERTS),
        speed=float(generator.uniform(*SPEEDS)),
        noise=SHAKING * float(generator.random()) ** 2,
        seed=int(generator.integers(2**31)),
    )


def drive(errand: Errand) -> None:
    """Works until the errand is over."""
    files.output_directory(Path(errand.directory))
    done = progress_of(errand)
    env = make(errand.env)
    while not errand.over(done):
        begun, chunk, logs = time.monotonic(), done, list[Dataset]()
        while chunk is done or (time.monotonic() - begun < CHUNK and not errand.over(chunk)):
            logs.append(episode(env, driver(errand.seed, chunk.episodes)))
            chunk = replace(
                chunk,
                seconds=done.seconds + time.monotonic() - begun,
                episodes=chunk.episodes + 1,
                steps=chunk.steps + logs[-1].transitions,
            )
        done = replace(
            chunk,
            chunks=chunk.chunks + 1,
            latest_return=float(np.mean([log.rewards.sum() for log in logs])),
            latest_cost=float(np.mean([log.costs.sum() for log in logs])),
        )
        save(errand, done, concatenate(logs))
    env.close()


def episode(env: Any, driver: Driver) -> Dataset:
    observation, _ = env.reset(seed=driver.seed)
    generator = np.random.default_rng(driver.seed)
    decide = _decision(env.unwrapped, driver)
    noise, rows, ended = np.zeros(2), list[tuple[Any, ...]](), False
    while not ended:
        noise = 0.9 * noise + np.sqrt(1 - 0.9**2) * generator.normal(size=2)
        action = into_box(env, decide() + driver.noise * noise)
        reward, cost, following, terminated, ended = step(env, action)
        rows.append((observation, action, reward, cost, following, terminated, ended and not terminated))
        observation = following
    return dataset_of(rows)


def _decision(env: Any, driver: Driver) -> Any:
    """() -> steering and acceleration, of the driver in its present place."""
    from metadrive.examples import expert
    from metadrive.policy.idm_policy import IDMPolicy

    if driver.expert:
        return lambda: np.asarray(expert(env.agent, deterministic=True), float)
    policy = IDMPolicy(env.agent, driver.seed)
    policy.NORMAL_SPEED = policy.target_speed = driver.speed
    return lambda: np.asarray(policy.act(), float)
