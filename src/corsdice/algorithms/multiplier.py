"""λ where it moves: of the paper's Algorithm 1, and of the baselines that are trained for one limit.

Violations are costs a step beyond the limit, in deviations of a logged step's cost; λ is in standard units.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from corsdice.algorithms.contract import Hypers
from corsdice.algorithms.logs import Logs

RECENT = 0.01
"""The part of the latest batch in an average over batches."""


def ascended(multiplier: jax.Array, violation: jax.Array, rate: jax.Array) -> jax.Array:
    """λ after a step of projected gradient ascent (label modified-lambda-loss)."""
    return jnp.maximum(0.0, multiplier + rate * violation)


GAINS = (0.1, 0.003, 0.001)
"""Of the controller: proportional, integral, derivative."""


class Controller(NamedTuple):
    """λ by the violation, by its sum and by its rise (PID; Stooke et al., 2020), never negative."""

    sum: jax.Array
    last: jax.Array
    multiplier: jax.Array


def controller() -> Controller:
    return Controller(*jnp.zeros(3))


def steered(state: Controller, violation: jax.Array, gains: tuple[float, float, float]) -> Controller:
    proportional, integral, derivative = gains
    total = jnp.maximum(0.0, state.sum + violation)
    rise = jnp.maximum(0.0, violation - state.last)
    multiplier = jnp.maximum(0.0, proportional * violation + integral * total + derivative * rise)
    return Controller(total, violation, multiplier)


def recent(average: jax.Array, latest: jax.Array) -> jax.Array:
    """An average over batches. A batch in which no row has any weight has 0/0 for an estimate, and tells nothing."""
    return jnp.where(jnp.isnan(latest), average, average + RECENT * (latest - average))


def in_deviations(hypers: Hypers, logs: Logs, cost: jax.Array) -> jax.Array:
    """A raw cost a step, in deviations of the logged ones."""
    return cost / (logs.units.cost_scale * (1 - hypers.discount))
