"""Guidance by the paper's energy E = log E[w(a_0|s) | a_t, s]: from the density of logged actions to π_w = w π_D.

    ∇ log π_t(a_t|s) = ∇ log π^D_t(a_t|s) + τ ∇ E(a_t, s, t)

With τ = 1 and the right E this is the score of π_w at every noise level; a larger τ goes further (appendix D-CORSDICE).
What is asked of E is its gradient, and what it learns from is its value: denoising with weights w, which learns the
same shift of E[a_0 | a_t, s] itself (`score.learn_actions`), is nearer to π_w and quicker to act by.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from corsdice import losses
from corsdice.diffusion.schedule import deviation, level, signal
from corsdice.diffusion.score import Fit, add_noise, apply_noised, learn
from corsdice.networks import ScoreNet

LARGEST = 8.0
"""Of |E|: where every w is 0 the loss asks for -∞."""


def learn_energy(
    network: ScoreNet,
    fit: Fit,
    observations: jax.Array,
    actions: jax.Array,
    correction: jax.Array,
    rate: jax.Array | float,
    key: jax.Array,
) -> tuple[Fit, jax.Array]:
    """A step on logged actions with their w(a|s) [n]; the network has one output."""
    noised = add_noise(actions, key)

    def loss(params: Any) -> jax.Array:
        return losses.energy_loss(_bounded(apply_noised(network, params, observations, noised)), correction)

    return learn(fit, loss, rate)


def guidance(
    network: ScoreNet, params: Any, condition: jax.Array, noised: jax.Array, half_log_snr: jax.Array
) -> jax.Array:
    """What τ = 1 adds to E[a_0 | a_t, s]: the score moves it by σ²/α times itself (Tweedie's formula)."""

    def energy(noised: jax.Array) -> jax.Array:
        return _bounded(network.apply(params, condition, noised, level(half_log_snr))).sum()

    return deviation(half_log_snr) ** 2 / signal(half_log_snr) * jax.grad(energy)(noised)


def _bounded(output: jax.Array) -> jax.Array:
    return LARGEST * jnp.tanh(output[..., 0] / LARGEST)
