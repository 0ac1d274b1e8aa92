"""The score model: what it is asked, how it learns, and a model of the logged actions.

It predicts v = α ε - σ a_0 from a_t, which tells the action a_0 = α a_t - σ v, the noise ε = σ a_t + α v and the score
-ε/σ alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from corsdice import losses
from corsdice.diffusion.schedule import deviation, draw_levels, level, signal
from corsdice.networks import ScoreNet

WEIGHT_DECAY = 1e-4
AVERAGING = 0.005
"""Of the parameters that are used, the average of those that learn."""
CHUNK = 500
"""Steps of one compiled call."""

ADAM = optax.scale_by_adam()


class Fit(NamedTuple):
    """A network that learns, and the average of its parameters, which is used."""

    params: Any
    average: Any
    optimiser: Any


def begin(network: ScoreNet, key: jax.Array, observations: jax.Array, actions: jax.Array) -> Fit:
    """Rows [n, O] and [n, A] tell the shapes."""
    return begin_at(network.init(key, observations[:1], actions[:1], jnp.zeros(1), method="start"))


def begin_at(params: Any) -> Fit:
    return Fit(params, params, ADAM.init(params))


def expected_action(
    network: ScoreNet, params: Any, condition: jax.Array, noised: jax.Array, half_log_snr: jax.Array
) -> jax.Array:
    """E[a_0 | a_t, s] = α a_t - σ v, which lies in the box as actions do."""
    velocity = network.apply(params, condition, noised, level(half_log_snr))
    return jnp.clip(signal(half_log_snr) * noised - deviation(half_log_snr) * velocity, -1, 1)


class Noised(NamedTuple):
    """Logged actions with noise of all levels."""

    actions: jax.Array
    """[n, A] a_t"""
    noise: jax.Array
    """[n, A] ε"""
    half_log_snr: jax.Array
    """[n, 1]"""


def add_noise(actions: jax.Array, key: jax.Array) -> Noised:
    level_key, noise_key = jax.random.split(key)
    levels = draw_levels(level_key, len(actions))
    noise = jax.random.normal(noise_key, actions.shape)
    return Noised(signal(levels) * actions + deviation(levels) * noise, noise, levels)


def apply_noised(network: ScoreNet, params: Any, observations: jax.Array, noised: Noised) -> jax.Array:
    condition = network.apply(params, observations, method="condition")
    return network.apply(params, condition, noised.actions, level(noised.half_log_snr[:, 0]))


def learn(fit: Fit, loss: Callable[[Any], jax.Array], rate: jax.Array | float) -> tuple[Fit, jax.Array]:
    """A step of AdamW on `loss`, and of the average, at first the mean of all steps."""
    value, gradients = jax.value_and_grad(loss)(fit.params)
    direction, optimiser = ADAM.update(gradients, fit.optimiser)
    params = jax.tree.map(lambda p, d: p - rate * (d + WEIGHT_DECAY * p), fit.params, direction)
    share = jnp.maximum(AVERAGING, 1 / optimiser.count)
    return Fit(params, optax.incremental_update(params, fit.average, share), optimiser), value


def learn_actions(
    network: ScoreNet,
    fit: Fit,
    observations: jax.Array,
    actions: jax.Array,
    rate: jax.Array | float,
    key: jax.Array,
    correction: jax.Array | float = 1.0,
) -> tuple[Fit, jax.Array]:
    """A step towards the density of these actions in these states, or with w(a|s) [n] towards w times it."""
    noised = add_noise(actions, key)
    scales = signal(noised.half_log_snr), deviation(noised.half_log_snr)

    def loss(params: Any) -> jax.Array:
        velocity = apply_noised(network, params, observations, noised)
        return losses.denoising_loss(velocity, actions, noised.noise, *scales, correction)

    return learn(fit, loss, rate)


def fit_actions(
    network: ScoreNet, observations: jax.Array, actions: jax.Array, steps: int, batch: int, rate: float, seed: int = 0
) -> Any:
    """The parameters of a model of logged actions: rates fall along a cosine, rows are drawn with replacement."""
    key = jax.random.key(seed)
    fit = begin(network, key, observations, actions)
    for start in range(0, steps, CHUNK):
        length = min(CHUNK, steps - start)
        fit = fit_chunk(network, length, batch, fit, observations, actions, jnp.int32(start), steps, rate, key)
    return fit.average


@partial(jax.jit, static_argnames=("network", "length", "batch"))
def fit_chunk(
    network: ScoreNet,
    length: int,
    batch: int,
    fit: Fit,
    observations: jax.Array,
    actions: jax.Array,
    start: jax.Array,
    steps: int,
    rate: float,
    key: jax.Array,
) -> Fit:
    """`length` steps from `start` on, of `steps` in all."""

    def step(fit: Fit, number: jax.Array) -> tuple[Fit, jax.Array]:
        rows_key, noise_key = jax.random.split(jax.random.fold_in(key, number))
        rows = jax.random.randint(rows_key, (batch,), 0, len(actions))
        falling = rate * 0.5 * (1 + jnp.cos(jnp.pi * number / steps))
        return learn_actions(network, fit, observations[rows], actions[rows], falling, noise_key)

    return jax.lax.scan(step, fit, start + jnp.arange(length))[0]
