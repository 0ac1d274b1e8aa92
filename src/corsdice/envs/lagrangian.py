"""Logs of an online agent: PPO on r - λc, with λ moved so that an episode costs about a given limit.

All its episodes are kept, from the first clumsy ones on, as in DSRL.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from corsdice import files
from corsdice.data.dataset import Dataset, concatenate, dataset_from
from corsdice.envs.errands import CHUNK, Errand, progress_of, save
from corsdice.envs.fleet import Fleet, into_box
from corsdice.envs.ppo import Batch, Settings, start, update
from corsdice.envs.simulators import make

if TYPE_CHECKING:
    import gymnasium

    Env = gymnasium.Env[Any, Any]

PROPORTIONAL, INTEGRAL = 0.5, 0.05
MOST = 20.0
"""The largest multiplier, in units of `Multiplier.price`."""


class Multiplier(NamedTuple):
    """λ by a proportional and an integral term of how far the cost is above the limit, relative to the limit.

    It is counted in `price`, the mean size of a reward over the mean of a cost that is not 0: at 1, a costly step
    cancels what an average step earns.
    """

    integral: float = 0.0
    price: float = 0.0

    def moved(self, batch: Batch, cost: float, limit: float) -> tuple[Multiplier, float]:
        """After a batch, with `cost` the mean of late: the multiplier and λ."""
        costs, rewards = np.asarray(batch.costs), np.asarray(batch.rewards)
        costly = costs[costs > 0]
        seen = float(np.abs(rewards).mean() / costly.mean()) if len(costly) else self.price
        price = seen if self.price == 0 else 0.9 * self.price + 0.1 * seen
        if math.isnan(cost):
            return self._replace(price=price), 0.0
        excess = float(np.clip((cost - limit) / max(limit, 1.0), -1.0, 2.0))
        integral = float(np.clip(self.integral + INTEGRAL * excess, 0.0, MOST))
        weight = min(max(PROPORTIONAL * excess + integral, 0.0), MOST)
        return Multiplier(integral, price), weight * price


def learn(errand: Errand, settings: Settings | None = None) -> None:
    """Works until the errand is over."""
    settings = settings or Settings()
    directory = files.output_directory(Path(errand.directory))
    done = progress_of(errand)
    envs = [make(errand.env) for _ in range(settings.envs)]
    box: Any = envs[0].action_space
    fleet = Fleet(envs, (errand.seed, done.chunks))  # a second run must not begin with the first's episodes
    key = jax.random.key(errand.seed)
    learner = start(key, fleet.observations.shape[-1], box.shape[0], settings)
    state = directory / "agent.safetensors"
    if done.chunks:
        learner = jax.tree.map(jax.numpy.asarray, files.read_tensors(state, learner))
    multiplier, penalty = Multiplier(done.integral, done.price), done.integral * done.price
    open_episodes = OpenEpisodes(envs)
    while not errand.over(done):
        begun, chunk = time.monotonic(), done
        while chunk is done or (time.monotonic() - begun < CHUNK and not errand.over(chunk)):
            act_key, update_key = jax.random.split(jax.random.fold_in(key, chunk.iteration))
            batch = fleet.rollout(learner.agent, act_key, settings)
            open_episodes.add(batch)
            learner = update(learner, batch, update_key, penalty, settings)
            multiplier, penalty = multiplier.moved(batch, fleet.latest[1], errand.limit)
            chunk = replace(
                chunk,
                seconds=done.seconds + time.monotonic() - begun,
                steps=chunk.steps + settings.envs * settings.rollout,
                iteration=chunk.iteration + 1,
            )
        ended = open_episodes.take()
        done = replace(
            chunk,
            chunks=chunk.chunks + 1,
            episodes=chunk.episodes + (len(ended.episodes.starts) if ended else 0),
            latest_return=fleet.latest[0],
            latest_cost=fleet.latest[1],
            integral=multiplier.integral,
            price=multiplier.price,
        )
        files.write_tensors(state, learner)
        save(errand, done, ended)
    for env in envs:
        env.close()


class OpenEpisodes:
    """Cuts what a fleet does, [steps, environments], into whole episodes."""

    def __init__(self, envs: list[Env]) -> None:
        self._env = envs[0]
        self._open: list[list[Batch]] = [[] for _ in envs]
        self._ended: list[Dataset] = []

    def add(self, batch: Batch) -> None:
        batch = jax.device_get(batch)
        for e, before in enumerate(self._open):
            rows = jax.tree.map(lambda column, e=e: column[:, e], batch)
            ends = np.flatnonzero(rows.ended)
            if not len(ends):
                before.append(rows)
                continue
            cut = int(ends[-1]) + 1
            whole = [*before, jax.tree.map(lambda column, cut=cut: column[:cut], rows)]
            self._ended.append(self._dataset(jax.tree.map(lambda *columns: np.concatenate(columns), *whole)))
            self._open[e] = [jax.tree.map(lambda column, cut=cut: column[cut:], rows)]

    def take(self) -> Dataset | None:
        """The episodes that ended since this was last asked."""
        ended, self._ended = self._ended, []
        return concatenate(ended) if ended else None

    def _dataset(self, rows: Batch) -> Dataset:
        columns = {name: np.asarray(column) for name, column in rows._asdict().items()}
        columns["actions"] = into_box(self._env, columns["actions"])
        columns["terminals"] = columns.pop("terminated")
        columns["timeouts"] = columns.pop("ended") & ~columns["terminals"]
        return dataset_from(columns)
