"""`dispatch`: a power station, wind and a store serve a town for a day of 24 hours that ends.

Wind may fail at any hour. What is then not served is rare, dear in the reward, and the cost.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from corsdice.envs.task import Step, Task

HOURS = 24
LULL = 0.03
"""Probability that the wind fails in an hour."""
RATE = 0.3
"""Of the store, in an hour."""
PENALTY = 40.0
"""In the reward, for each unit that is not served; a unit from the station earns -1."""
UNSERVED = 10.0
"""Cost of each unit that is not served."""


def _usual(hour: jax.Array) -> jax.Array:
    """What the town needs: most in the evening."""
    return 1 + 0.3 * jnp.cos(2 * jnp.pi * (hour - 19) / HOURS) + 0.1 * jnp.cos(4 * jnp.pi * (hour - 8) / HOURS)


def _reset(key: jax.Array) -> jax.Array:
    least, most = jnp.array([0.2, -0.1, 0.2]), jnp.array([0.8, 0.1, 0.8])
    wind, need, stored = jax.random.uniform(key, (3,), minval=least, maxval=most)
    return jnp.stack([jnp.zeros(()), _usual(jnp.zeros(())) + need, wind, stored, jnp.array(0.6)])


def _step(key: jax.Array, state: jax.Array, action: jax.Array) -> Step:
    """The station follows slowly what it is told; the store gives or takes at once."""
    hour, need, wind, stored, station = state
    told, given = jnp.clip(action, -1, 1)
    station = station + 0.5 * (0.75 * (told + 1) - station)
    given = jnp.clip(RATE * given, stored - 1, stored)
    unserved = jnp.maximum(need - wind - station - given, 0)
    noise_key, lull_key = jax.random.split(key)
    noise = jax.random.normal(noise_key, (2,))
    fails = jax.random.uniform(lull_key) < LULL
    blown = jnp.clip(wind + 0.15 * (0.5 - wind) + 0.08 * noise[0], 0, 1)
    later = hour + 1
    after = [later, _usual(later) + 0.8 * (need - _usual(hour)) + 0.05 * noise[1], jnp.where(fails, 0.02, blown)]
    return Step(
        state=jnp.stack([*after, stored - given, station]),
        reward=-station - PENALTY * unserved,
        cost=UNSERVED * unserved,
        terminated=later >= HOURS,
    )


def _controller(style: jax.Array, state: jax.Array) -> jax.Array:
    """Operators who hold a reserve, from an ample one to none, and fill the store when there is too much."""
    _, need, wind, stored, station = state
    spare = 0.45 - 0.55 * style
    told = need - wind + spare
    short = need - wind - station
    given = jnp.where(short > 0, short / RATE, jnp.where(stored < 0.8, short / RATE, 0.0))
    return jnp.stack([told / 0.75 - 1, given])


DISPATCH = Task(
    "dispatch",
    "serve a town by a station, wind and a store; what is not served is rare, dear, and the cost; days end",
    5,
    2,
    HOURS,
    _reset,
    _step,
    _controller,
)
