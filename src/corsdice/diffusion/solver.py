"""DPM-Solver++ (Lu et al., 2022): the probability-flow ODE, from noise to an action, in few steps.

With its linear part solved exactly, what is left of the ODE is an integral over λ of the expected action x_0(x, λ),
which changes slowly. From λ_i to λ_{i+1} = λ_i + h_i:

    x_{i+1} = (σ_{i+1}/σ_i) x_i + α_{i+1} (1 - e^{-h_i}) D_i
    D_i = x_0(x_i) + h_i / (2 h_{i-1}) (x_0(x_i) - x_0(x_{i-1}))

D_i is extrapolated to the middle of the step from the last two predictions: second order, one prediction a step.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from corsdice.diffusion.schedule import deviation, grid, signal

Predict = Callable[[jax.Array, jax.Array], jax.Array]
"""(x [..., A], λ) -> E[x_0 | x] [..., A]"""


def solve(predict: Predict, noise: jax.Array, steps: int) -> jax.Array:
    """Where the flow leads from `noise` [..., A] at t = 1, by so many predictions (at least two).

    The first step has no prediction before it; the last goes to λ = ∞, where D alone is left, and takes D as predicted.
    """
    levels = grid(steps)
    here, then = levels[:-1], levels[1:]
    length = then - here
    kept = deviation(then) / deviation(here)
    gained = signal(then) * -jnp.expm1(-length)
    extrapolated = jnp.append(0.0, length[1:] / (2 * length[:-1]))

    Carry = tuple[jax.Array, jax.Array]

    def step(carry: Carry, each: tuple[jax.Array, ...]) -> tuple[Carry, None]:
        x, before = carry
        level, kept, gained, extrapolated = each
        expected = predict(x, level)
        between = expected + extrapolated * (expected - before)
        return (kept * x + gained * between, expected), None

    (x, _), _ = jax.lax.scan(step, (noise, jnp.zeros_like(noise)), (here, kept, gained, extrapolated))
    return predict(x, levels[-1])
