"""The only file that knows the neural-network library: perceptrons, and actors with their likelihood.

Last layers start at zero, so critics start at 0 and every correction at w(0) = 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

LOG_STD_RANGE = (-4.0, 1.0)
FAR = 30.0
"""Deviations beyond which a Gaussian tail is its asymptote to float32 accuracy."""
SQUASH_MARGIN = 1e-3
"""tanh reaches ±1 at infinity only: logged actions are held this far from it."""


class MLP(nn.Module):
    """Linear layers with ReLU between them and, if asked for, LayerNorm before each ReLU; or SiLU, which is smooth."""

    widths: tuple[int, ...]
    outputs: int
    layer_norm: bool = False
    smooth: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        bend = nn.silu if self.smooth else nn.relu
        for width in self.widths:
            x = nn.Dense(width)(x)
            x = bend(nn.LayerNorm()(x) if self.layer_norm else x)
        return nn.Dense(self.outputs, kernel_init=nn.initializers.zeros)(x)


class Critic(nn.Module):
    """`members` independent functions of a row to a number: [..., features] -> [members, ...]."""

    widths: tuple[int, ...]
    members: int = 1
    layer_norm: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.stack([MLP(self.widths, 1, self.layer_norm)(x)[..., 0] for _ in range(self.members)])


class Mixture(NamedTuple):
    """A mixture of K diagonal Gaussians over A action dimensions."""

    logits: jax.Array
    """[..., K]"""
    means: jax.Array
    """[..., K, A]"""
    log_stds: jax.Array
    """[..., K, A]"""


class Actor(nn.Module):
    """A stochastic policy on [-1, 1]^A: a mixture of Gaussians, brought into the box by tanh or by clipping.

    One component squashed by tanh is the paper's actor. Clipping puts mass on the bounds, as logs of saturated
    controls have it, where tanh has none.
    """

    actions: int
    widths: tuple[int, ...]
    components: int = 1
    squash: bool = True

    @nn.compact
    def __call__(self, observations: jax.Array) -> Mixture:
        k, a = self.components, self.actions
        outputs = MLP(self.widths, k * (1 + 2 * a))(observations)
        lead = outputs.shape[:-1]
        # Distinct starting points: components that start as one would stay one.
        spread = self.param("spread", nn.initializers.uniform(2.0), (k, a)) - 1.0 if k > 1 else 0.0
        low, high = LOG_STD_RANGE
        return Mixture(
            logits=outputs[..., :k],
            means=outputs[..., k : k + k * a].reshape(*lead, k, a) + spread,
            log_stds=jnp.clip(outputs[..., k + k * a :].reshape(*lead, k, a) - 0.5, low, high),
        )

    @nn.nowrap
    def draw(self, params: Any, observations: jax.Array, key: jax.Array) -> jax.Array:
        return draw(self.apply(params, observations), key, squash=self.squash)

    @nn.nowrap
    def log_likelihood(self, params: Any, observations: jax.Array, actions: jax.Array) -> jax.Array:
        return log_likelihood(self.apply(params, observations), actions, squash=self.squash)


class Latent(NamedTuple):
    """A diagonal Gaussian over what tells actions of one state apart."""

    mean: jax.Array
    log_std: jax.Array


class VAE(nn.Module):
    """Logged actions by a latent variable: q(z|s,a) and, before the tanh that brings it into the box, a(s,z)."""

    actions: int
    widths: tuple[int, ...]

    @property
    def latents(self) -> int:
        return 2 * self.actions

    def setup(self) -> None:
        self.encoder = MLP(self.widths, 2 * self.latents)
        self.decoder = MLP(self.widths, self.actions)

    def __call__(self, observations: jax.Array, actions: jax.Array) -> tuple[Latent, jax.Array]:
        """q(z|s,a), and the action at its mean."""
        latent = self.encode(observations, actions)
        return latent, self.decode(observations, latent.mean)

    def encode(self, observations: jax.Array, actions: jax.Array) -> Latent:
        mean, log_std = jnp.split(self.encoder(jnp.concatenate([observations, actions], -1)), 2, -1)
        return Latent(mean, jnp.clip(log_std, -4.0, 4.0))

    def decode(self, observations: jax.Array, latents: jax.Array) -> jax.Array:
        return self.decoder(jnp.concatenate([observations, latents], -1))


class ScoreNet(nn.Module):
    """Of a noised action in a state, at a noise level in [0, 1]: a U of residual blocks (Ronneberger et al., 2015).

    Linear layers stand where images have convolutions. A block of the second half also sees what its counterpart in the
    first half gave. What the state adds to each block does not depend on the noise, so a sampler asks for it once.
    """

    outputs: int
    width: int
    blocks: int
    time_size: int
    condition_size: int

    def setup(self) -> None:
        added = self.blocks * self.width
        self.of_state = MLP((self.condition_size, self.condition_size), added)
        self.of_level = MLP((self.time_size,), added)
        self.inwards = nn.Dense(self.width)
        self.firsts = [nn.Dense(self.width) for _ in range(self.blocks)]
        self.seconds = [nn.Dense(self.width) for _ in range(self.blocks)]
        self.outwards = nn.Dense(self.outputs, kernel_init=nn.initializers.zeros)

    def condition(self, observations: jax.Array) -> jax.Array:
        """[..., O] -> [..., blocks, width]"""
        return self._by_block(self.of_state(observations))

    def __call__(self, condition: jax.Array, noised: jax.Array, level: jax.Array) -> jax.Array:
        """[..., outputs] from what `condition` gave, [..., A] and [...]; leading axes may be broadcast."""
        added = condition + self._by_block(self.of_level(_waves(level, self.time_size)))
        half = self.blocks // 2
        x = self.inwards(noised)
        seen: list[jax.Array] = []
        for block in range(self.blocks):
            mirrored = block >= self.blocks - half
            inputs = jnp.concatenate([x, seen.pop()], -1) if mirrored else x
            x = x + self.seconds[block](nn.silu(self.firsts[block](inputs) + added[..., block, :]))
            if block < half:
                seen.append(x)
        return self.outwards(nn.silu(x))

    def start(self, observations: jax.Array, noised: jax.Array, level: jax.Array) -> jax.Array:
        """Everything that has parameters, for `init`."""
        return self(self.condition(observations), noised, level)

    def _by_block(self, added: jax.Array) -> jax.Array:
        return added.reshape(*added.shape[:-1], self.blocks, self.width)


def _waves(level: jax.Array, size: int) -> jax.Array:
    """[...] in [0, 1] -> [..., size]: half a turn over the whole range, up to sixteen turns."""
    angles = jnp.pi * jnp.geomspace(1.0, 32.0, size // 2) * level[..., None]
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)


def log_likelihood(mixture: Mixture, actions: jax.Array, *, squash: bool) -> jax.Array:
    """log π(a|s) [...] of actions [..., A] in [-1, 1]: a density, and under clipping a probability on the bounds."""
    actions = actions[..., None, :]
    stds = jnp.exp(mixture.log_stds)
    if squash:
        inside = jnp.clip(actions, -1 + SQUASH_MARGIN, 1 - SQUASH_MARGIN)
        z = (jnp.arctanh(inside) - mixture.means) / stds
        each = jax.scipy.stats.norm.logpdf(z) - mixture.log_stds - jnp.log1p(-(inside**2))
    else:
        z = (actions - mixture.means) / stds
        density = jax.scipy.stats.norm.logpdf(z) - mixture.log_stds
        bound = jnp.abs(actions) >= 1
        # Each branch of the `where` sees only arguments that are safe for it.
        each = jnp.where(bound, _log_tail(jnp.where(bound, z * jnp.sign(actions), 0.0)), density)
    return jax.scipy.special.logsumexp(each.sum(-1) + jax.nn.log_softmax(mixture.logits), axis=-1)


def _log_tail(z: jax.Array) -> jax.Array:
    """log P(N(0,1) > z); far out by its asymptote, since in float32 the gradient of `logcdf` cancels there."""
    far = z > FAR
    near = jax.scipy.stats.norm.logcdf(-jnp.where(far, 0.0, z))
    distant = jnp.where(far, z, FAR)
    return jnp.where(far, -0.5 * distant**2 - jnp.log(distant) - 0.5 * jnp.log(2 * jnp.pi), near)


def draw(mixture: Mixture, key: jax.Array, *, squash: bool) -> jax.Array:
    """An action [..., A] of the policy."""
    component_key, noise_key = jax.random.split(key)
    chosen = jax.random.categorical(component_key, mixture.logits)
    mean, std = _component(mixture, chosen)
    return _into_box(mean + std * jax.random.normal(noise_key, mean.shape), squash=squash)


def mode(mixture: Mixture, *, squash: bool) -> jax.Array:
    """The centre [..., A] of the most probable component."""
    return _into_box(_component(mixture, mixture.logits.argmax(-1))[0], squash=squash)


def _component(mixture: Mixture, chosen: jax.Array) -> tuple[jax.Array, jax.Array]:
    index = chosen[..., None, None]
    mean = jnp.take_along_axis(mixture.means, index, -2)[..., 0, :]
    return mean, jnp.exp(jnp.take_along_axis(mixture.log_stds, index, -2)[..., 0, :])


def _into_box(values: jax.Array, *, squash: bool) -> jax.Array:
    return jnp.tanh(values) if squash else jnp.clip(values, -1, 1)
