"""Tasks of a point that is pushed about in the plane: its state is (x, y, v_x, v_y), its action a push.

`point-circle` and `point-run` follow the idea of the circle and run tasks of Bullet-Safety-Gym; `point-ridge` may end
early. On the run and on the ridge nothing depends on how far the point has come, so x is no part of the state: a
coordinate that grows for ever has no stationary distribution, which is what discounted estimates speak of.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from corsdice.envs.task import Step, Task

TIME_STEP = 0.1
PUSH = 3.0
"""Acceleration of a full push."""
DRAG = 0.8
"""So that the top speed, PUSH / DRAG, is 3.75 in each direction."""
JITTER = 0.1
"""Standard deviation of the velocity's disturbance in one step."""

RADIUS = 2.0
"""Of the circle to be run."""
WALL = 1.2
"""Beyond |x| = WALL the circle costs."""
LANE = 1.0
"""Beyond |y| = LANE the run costs."""
SPEED_LIMIT = 2.0
"""Above it the run costs, and so does the ridge."""
RIDGE = 0.5
"""Beyond |y| = RIDGE the point falls."""
SHAKE = 1.0
"""How much the disturbance on the ridge grows with the speed."""


def _push(key: jax.Array, state: jax.Array, action: jax.Array, jitter: jax.Array | float = JITTER) -> jax.Array:
    """One step of a point mass with drag and a random disturbance of its velocity."""
    position, velocity = state[:2], state[2:]
    acceleration = PUSH * jnp.clip(action, -1, 1) - DRAG * velocity
    velocity = velocity + TIME_STEP * acceleration + jitter * jax.random.normal(key, (2,))
    return jnp.concatenate([position + TIME_STEP * velocity, velocity])


def _push_along(key: jax.Array, state: jax.Array, action: jax.Array, jitter: jax.Array | float = JITTER) -> jax.Array:
    """The same step of (y, v_x, v_y)."""
    return _push(key, jnp.concatenate([jnp.zeros(1), state]), action, jitter)[1:]


def _start(key: jax.Array) -> jax.Array:
    return 0.1 * jax.random.normal(key, (4,))


def _start_along(key: jax.Array) -> jax.Array:
    return _start(key)[1:]


def _steer(velocity: jax.Array, wanted: jax.Array) -> jax.Array:
    """The push that keeps a wanted velocity against the drag."""
    return jnp.clip((DRAG * wanted + 4 * (wanted - velocity)) / PUSH, -1, 1)


def _circle_step(key: jax.Array, state: jax.Array, action: jax.Array) -> Step:
    after = _push(key, state, action)
    x, y, v_x, v_y = after
    radius = jnp.sqrt(x**2 + y**2 + 1e-6)
    along = (x * v_y - y * v_x) / radius
    return Step(
        state=after,
        reward=along / (1 + jnp.abs(radius - RADIUS)),
        cost=(jnp.abs(x) > WALL).astype(jnp.float32),
        terminated=jnp.array(False),
    )


def _circle_controller(style: jax.Array, state: jax.Array) -> jax.Array:
    """Round the circle: narrow and slow, well within the walls, or at full radius and speed."""
    width = WALL * 0.8 + style * (RADIUS - WALL * 0.8)
    x, y = state[0] * RADIUS / width, state[1]  # an ellipse that the walls squeeze
    radius = jnp.sqrt(x**2 + y**2 + 1e-6)
    speed = 1.0 + 1.8 * style
    tangent = jnp.array([-y, x]) / radius
    inward = jnp.array([x, y]) / radius * (RADIUS - radius)
    return _steer(state[2:], (speed * tangent + 1.5 * inward) * jnp.array([width / RADIUS, 1.0]))


def _run_step(key: jax.Array, state: jax.Array, action: jax.Array) -> Step:
    after = _push_along(key, state, action)
    y, v_x, _ = after
    return Step(
        state=after,
        reward=v_x,
        cost=((v_x > SPEED_LIMIT) | (jnp.abs(y) > LANE)).astype(jnp.float32),
        terminated=jnp.array(False),
    )


def _ridge_step(key: jax.Array, state: jax.Array, action: jax.Array) -> Step:
    after = _push_along(key, state, action, JITTER * (1 + SHAKE * jnp.abs(state[1])))
    y, v_x, _ = after
    return Step(
        state=after,
        reward=v_x,
        cost=(v_x > SPEED_LIMIT).astype(jnp.float32),
        terminated=jnp.abs(y) > RIDGE,
    )


def _forward_controller(style: jax.Array, state: jax.Array) -> jax.Array:
    """Straight ahead, from half the speed limit to well above it; the faster, the less careful of the lane."""
    speed = SPEED_LIMIT * (0.5 + style)
    return _steer(state[1:], jnp.array([speed, -(1.5 - style) * state[0]]))


POINTS = (
    Task(
        "point-circle",
        "run round a circle; leaving |x| <= 1.2 costs",
        4,
        2,
        200,
        _start,
        _circle_step,
        _circle_controller,
    ),
    Task(
        "point-run",
        "run along x; speed above 2 and leaving |y| <= 1 cost",
        3,
        2,
        100,
        _start_along,
        _run_step,
        _forward_controller,
    ),
    Task(
        "point-ridge",
        "run along a ridge; speed above 2 costs, leaving |y| <= 0.5 is a fall that ends it",
        3,
        2,
        100,
        _start_along,
        _ridge_step,
        _forward_controller,
    ),
)
