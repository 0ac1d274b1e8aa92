"""How actions are noised: the variance-preserving SDE dx = -½ β(t) x dt + √β(t) dw with β linear (Song et al., 2021).

a_t = α_t a_0 + σ_t ε with α_t² + σ_t² = 1, so one number tells all: λ = log(α_t / σ_t), half the logarithm of the
signal-to-noise ratio. It falls from 4.6 to -5.0 as t goes from `FIRST` to 1.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

BETAS = (0.1, 20.0)
"""β at t = 0 and at t = 1."""
FIRST = 1e-3
"""The least noise that a network is asked about: σ is then .01, where actions go from -1 to 1."""
CENTRE, SHARPNESS = 2.0, 0.7
"""Of the solver's steps in λ: closest where σ is about .13, where modes of logged actions part. On mixtures whose score
is known, steps that are even in λ leave four times the total variation (see docs/diffusion.md)."""


def log_signal(t: jax.Array | float) -> jax.Array:
    """log α_t = -½ ∫_0^t β"""
    low, high = BETAS
    return -0.5 * (low * jnp.asarray(t) + 0.5 * (high - low) * jnp.asarray(t) ** 2)


def half_log_snr(t: jax.Array | float) -> jax.Array:
    """λ(t) = log α_t - log σ_t"""
    log_alpha = log_signal(t)
    return log_alpha - 0.5 * jnp.log(-jnp.expm1(2 * log_alpha))


def time_of(half_log_snr: jax.Array) -> jax.Array:
    """The t of a λ: -log α_t = ½ log(1 + e^{-2λ}) is a quadratic in t, solved without a difference of like numbers."""
    low, high = BETAS
    lost = 0.5 * jax.nn.softplus(-2 * half_log_snr)
    return 4 * lost / (low + jnp.sqrt(low**2 + 4 * (high - low) * lost))


def signal(half_log_snr: jax.Array) -> jax.Array:
    """α = 1 / √(1 + e^{-2λ})"""
    return jnp.sqrt(jax.nn.sigmoid(2 * half_log_snr))


def deviation(half_log_snr: jax.Array) -> jax.Array:
    """σ = √(1 - α²)"""
    return jnp.sqrt(jax.nn.sigmoid(-2 * half_log_snr))


def level(half_log_snr: jax.Array) -> jax.Array:
    """Of noise, as networks are told it: 0 at t = FIRST, 1 at t = 1, even in λ."""
    clean, noise = _ends()
    return (clean - half_log_snr) / (clean - noise)


def grid(steps: int) -> jax.Array:
    """λ [steps] from t = 1 to t = FIRST, closest around CENTRE."""
    clean, noise = (jnp.arcsinh(SHARPNESS * (end - CENTRE)) for end in _ends())
    return CENTRE + jnp.sinh(jnp.linspace(noise, clean, steps)) / SHARPNESS


def draw_levels(key: jax.Array, count: int) -> jax.Array:
    """λ [count, 1] to learn from, even in λ: one in each of `count` equal parts, so that no batch lacks any level.

    Uniform times, which are usual, leave one row in twenty to the levels at which modes get their width.
    """
    clean, noise = _ends()
    parts = (jnp.arange(count) + jax.random.uniform(key, (count,))) / count
    return (noise + (clean - noise) * parts)[:, None]


def _ends() -> tuple[jax.Array, jax.Array]:
    return half_log_snr(FIRST), half_log_snr(1.0)
