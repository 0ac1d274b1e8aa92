"""`home-battery`: a house buys and stores energy at prices of the hour; a reserve for a failing grid must stay.

The logs are of four kinds of people, and no column says whose a row is: one charges by the clock, one by the price and
with a reserve, one by the price alone, one covers what the house needs. A day has 96 quarters of an hour and is cut
off, not ended, at midnight.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from corsdice.envs.task import Step, Task

QUARTERS = 96
"""Of an hour, in a day."""
FULL_IN = 24.0
"""Quarters in which an empty battery is full."""
POWER = 1.5
"""Of the battery, in the unit of the house's mean need."""
RESERVE = 0.3
"""A charge below it costs."""
KINDS = 4
"""Of people."""


def _turned(clock: jax.Array, hours: float) -> jax.Array:
    """cos of the time of day, later by so many hours; `clock` is (sin, cos)."""
    angle = 2 * jnp.pi * hours / 24
    return clock[1] * jnp.cos(angle) + clock[0] * jnp.sin(angle)


def _usual(clock: jax.Array) -> jax.Array:
    """(price, need) at this time of day: both are high in the evening, the need in the morning too."""
    twice = 2 * _turned(clock, 7) ** 2 - 1
    return jnp.array([1 + 0.5 * _turned(clock, 19), 1 + 0.3 * _turned(clock, 20) + 0.2 * twice])


def _reset(key: jax.Array) -> jax.Array:
    charge_key, noise_key = jax.random.split(key)
    clock = jnp.array([0.0, 1.0])
    now = _usual(clock) + 0.1 * jax.random.normal(noise_key, (2,))
    return jnp.concatenate([jax.random.uniform(charge_key, (1,), minval=0.3, maxval=0.7), now, clock])


def _step(key: jax.Array, state: jax.Array, action: jax.Array) -> Step:
    charge, price, need = state[:3]
    clock = state[3:]
    stored = jnp.clip(charge + jnp.clip(action[0], -1, 1) / FULL_IN, 0, 1) - charge
    bought = jnp.maximum(need + POWER * FULL_IN * stored, 0)  # nothing is sold
    turn = 2 * jnp.pi / QUARTERS
    later = jnp.array([[jnp.cos(turn), jnp.sin(turn)], [-jnp.sin(turn), jnp.cos(turn)]]) @ clock
    noise = jnp.array([0.03, 0.08]) * jax.random.normal(key, (2,))
    now = _usual(later) + 0.95 * (state[1:3] - _usual(clock)) + noise
    charge = charge + stored
    return Step(
        state=jnp.concatenate([charge[None], now, later]),
        reward=-price * bought / 4,
        cost=(charge < RESERVE).astype(jnp.float32),
        terminated=jnp.array(False),
    )


def _controller(style: jax.Array, state: jax.Array) -> jax.Array:
    """One of four kinds of people, each more or less eager."""
    charge, price, need = state[:3]
    clock = state[3:]
    kind, eager = jnp.floor(KINDS * style), 0.5 + (KINDS * style) % 1
    by_price = 4 * eager * (1 - price)
    by_clock = jnp.where(_turned(clock, 3) > 0.5, 1.0, jnp.where(_turned(clock, 19) > 0.6, -1.0, 0.0)) * eager
    careful = jnp.where((charge < RESERVE + 0.1) & (by_price < 0), 0.0, by_price)
    by_need = 2 * eager * (1 - need)
    return jnp.select([kind == 0, kind == 1, kind == 2], [by_clock, careful, by_price], by_need)[None]


HOME_BATTERY = Task(
    "home-battery",
    "buy and store energy for a house; a charge below .3 costs; the logs are of four kinds of people",
    5,
    1,
    QUARTERS,
    _reset,
    _step,
    _controller,
)
