"""Logs of an online agent: PPO on r - λc, with λ moved so that an episode costs about a given limit.

All its episodes are kept, from the first clumsy ones on, as in DSRL. An agent works in a directory of its own and puts
its episodes and itself there every CHUNK seconds: a killed one goes on from its latest chunk.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from corsdice import data, files
from corsdice.data.dataset import Dataset, concatenate, dataset_from
from corsdice.envs.fleet import Fleet, into_box
from corsdice.envs.ppo import Batch, Learner, Settings, start, update
from corsdice.envs.simulators import make

if TYPE_CHECKING:
    import gymnasium

    Env = gymnasium.Env[Any, Any]

CHUNK = 30.0
"""Seconds of work between two savings."""
PROPORTIONAL, INTEGRAL = 0.5, 0.05
MOST = 20.0
"""The largest multiplier, in units of `Multiplier.price`."""


@dataclass(frozen=True)
class Errand:
    """One agent's work."""

    env: str
    limit: float
    """Undiscounted cost of an episode to aim at."""
    seconds: float
    """To work for, over all its runs together."""
    seed: int
    directory: str
    settings: Settings = field(default_factory=Settings)


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


class Progress(NamedTuple):
    """What an agent says of itself after a chunk."""

    limit: float
    seconds: float
    steps: int
    latest_return: float
    latest_cost: float


def carry_out(errand: Errand, tell: Callable[[Progress], None] = lambda progress: None) -> list[str]:
    """Works until the time is used up; the paths of the episodes, in their order."""
    directory = files.output_directory(Path(errand.directory))
    settings = errand.settings
    envs = [make(errand.env) for _ in range(settings.envs)]
    box: Any = envs[0].action_space
    fleet = Fleet(envs, errand.seed)
    key = jax.random.key(errand.seed)
    learner = start(key, fleet.observations.shape[-1], box.shape[0], settings)
    state = directory / "agent.safetensors"
    multiplier, iteration, spent, chunks = Multiplier(), 0, 0.0, 0
    if state.exists():
        learner = jax.tree.map(jax.numpy.asarray, files.read_tensors(state, learner))
        said = json.loads(files.read_tensors_metadata(state)["progress"])
        multiplier = Multiplier(said["integral"], said["price"])
        iteration, spent, chunks = said["iteration"], said["spent"], said["chunks"]
        fleet = Fleet(envs, errand.seed + 7919 * chunks)  # else the first episodes would be begun again
    penalty, episodes = 0.0, OpenEpisodes(envs)
    while spent < errand.seconds:
        begun = time.monotonic()
        while (used := time.monotonic() - begun) < min(CHUNK, errand.seconds - spent):
            act_key, update_key = jax.random.split(jax.random.fold_in(key, iteration))
            batch = fleet.rollout(learner.agent, act_key, settings)
            episodes.add(batch)
            learner = update(learner, batch, update_key, penalty, settings)
            multiplier, penalty = multiplier.moved(batch, fleet.latest[1], errand.limit)
            iteration += 1
        spent += used
        _save(directory, chunks, episodes.take(), learner, {
            **multiplier._asdict(), "iteration": iteration, "spent": spent, "chunks": chunks + 1,
        })  # fmt: skip
        chunks += 1
        tell(Progress(errand.limit, spent, iteration * settings.envs * settings.rollout, *fleet.latest))
    for env in envs:
        env.close()
    return [str(path) for path in parts(directory)]


def parts(directory: Path) -> list[Path]:
    """The files of episodes that are whole, in their order."""
    state = directory / "agent.safetensors"
    if not state.exists():
        return []
    chunks = json.loads(files.read_tensors_metadata(state)["progress"])["chunks"]
    return [path for chunk in range(chunks) if (path := directory / f"{chunk:04}.hdf5").exists()]


def _save(directory: Path, chunk: int, done: Dataset | None, learner: Learner, said: dict[str, Any]) -> None:
    """Episodes first: an agent that says it has done a chunk has its episodes on disk."""
    if done is not None:
        data.write(done, directory / f"{chunk:04}.hdf5")
    files.write_tensors(directory / "agent.safetensors", learner, {"progress": json.dumps(said)})


class OpenEpisodes:
    """Cuts what a fleet does, [steps, environments], into whole episodes."""

    def __init__(self, envs: list[Env]) -> None:
        self._env = envs[0]
        self._open: list[list[Batch]] = [[] for _ in envs]
        self._done: list[Dataset] = []

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
            self._done.append(self._dataset(jax.tree.map(lambda *columns: np.concatenate(columns), *whole)))
            self._open[e] = [jax.tree.map(lambda column, cut=cut: column[cut:], rows)]

    def take(self) -> Dataset | None:
        """The episodes that ended since this was last asked."""
        done, self._done = self._done, []
        return concatenate(done) if done else None

    def _dataset(self, rows: Batch) -> Dataset:
        columns = {name: np.asarray(column) for name, column in rows._asdict().items()}
        columns["actions"] = into_box(self._env, columns["actions"])
        columns["terminals"] = columns.pop("terminated")
        columns["timeouts"] = columns.pop("ended") & ~columns["terminals"]
        return dataset_from(columns)
