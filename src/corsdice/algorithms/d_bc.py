"""Behaviour cloning by diffusion: of all logs (D-BC-All), or of the episodes within the cost limit (D-BC-Safe)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax

from corsdice.algorithms import contract
from corsdice.algorithms.contract import Hypers, Metrics, Params, decay
from corsdice.algorithms.logs import Logs, draw_batch
from corsdice.diffusion.actors import Diffused
from corsdice.diffusion.score import Fit, begin, learn_actions


@dataclass(frozen=True)
class ScoreConfig(contract.Config):
    """Of algorithms with a score model of logged actions."""

    score_width: int = 128
    blocks: int = 3
    """Residual ones of the score model."""
    time_embedding: int = 32
    condition_embedding: int = 128
    solver_steps: int = 10
    """Predictions from noise to an action."""
    score_batch: int = 512

    def diffused(self, actions: int) -> Diffused:
        """Draws as the logs do."""
        sizes = (self.score_width, self.blocks, self.time_embedding, self.condition_embedding)
        return Diffused(actions, *sizes, self.solver_steps)


@dataclass(frozen=True)
class Config(ScoreConfig):
    safe_only: bool = False
    """Clone only episodes whose undiscounted cost is within the limit."""

    def actor(self, actions: int) -> Diffused:
        return self.diffused(actions)


class State(NamedTuple):
    fit: Fit

    @property
    def params(self) -> Params:
        """The averaged ones act."""
        return {"actor": self.fit.average}


def init(config: Config, hypers: Hypers, logs: Logs, key: jax.Array) -> State:
    rows = logs.transitions
    return State(begin(config.diffused(rows.actions.shape[-1]).network, key, rows.observations, rows.actions))


def update(
    config: Config, hypers: Hypers, logs: Logs, state: State, step: jax.Array, key: jax.Array
) -> tuple[State, Metrics]:
    batch_key, noise_key = jax.random.split(key)
    rows = hypers.safe_rows if config.safe_only else logs.rows
    batch = draw_batch(logs, batch_key, config.score_batch, rows)
    network = config.diffused(batch.actions.shape[-1]).network
    rate = hypers.learning_rate * decay(config, step)
    fit, loss = learn_actions(network, state.fit, batch.observations, batch.actions, rate, noise_key)
    return State(fit), {"policy_loss": loss}
