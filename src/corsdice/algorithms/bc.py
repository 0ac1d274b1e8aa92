"""Behaviour cloning: of all logs (BC-All), or of the episodes within the cost limit (BC-Safe)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from corsdice import losses
from corsdice.algorithms import contract
from corsdice.algorithms.contract import ADAM, Hypers, Metrics, Params, descend
from corsdice.algorithms.logs import Logs, draw_batch


@dataclass(frozen=True)
class Config(contract.MixtureConfig):
    safe_only: bool = False
    """Clone only episodes whose undiscounted cost is within the limit."""


class State(NamedTuple):
    params: Params
    optimiser: Any


def init(config: Config, hypers: Hypers, logs: Logs, key: jax.Array) -> State:
    rows = logs.transitions
    params = {"actor": config.clone(rows.actions.shape[-1]).init(key, rows.observations[:1])}
    return State(params, ADAM.init(params))


def update(
    config: Config, hypers: Hypers, logs: Logs, state: State, step: jax.Array, key: jax.Array
) -> tuple[State, Metrics]:
    rows = hypers.safe_rows if config.safe_only else logs.rows
    batch = draw_batch(logs, key, config.batch_size, rows)
    actor = config.clone(batch.actions.shape[-1])

    def loss(params: Params) -> jax.Array:
        likelihood = actor.log_likelihood(params["actor"], batch.observations, batch.actions)
        return losses.policy_loss(likelihood, jnp.ones(()))

    value, gradients = jax.value_and_grad(loss)(state.params)
    params, optimiser = descend(config, hypers, state.params, gradients, state.optimiser, step)
    return State(params, optimiser), {"policy_loss": value}
