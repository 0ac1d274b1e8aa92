"""What every algorithm shares: the static settings, the traced ones, and the way parameters are moved.

An algorithm is a module with a frozen `Config` and two pure functions, those of the DICE family with a third:

    init(config, hypers, logs, key) -> State
    update(config, hypers, logs, state, step, key) -> (State, metrics)
    corrections(config, hypers, logs, state, batch) -> w(a|s) or w(s,a), one for each row

`State` is a pytree with `params`, a field or told by others, that hold the actor's under "actor"; the policy that ships
is that actor. A family has `Config.ways`, several ways to act, and instead of one actor

    networks(state, alpha) -> the parameters of what acts, by the names of the ways
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from corsdice.actors import Acts
from corsdice.algorithms.logs import Logs
from corsdice.networks import Actor

Params = dict[str, Any]
Metrics = dict[str, jax.Array]


@dataclass(frozen=True)
class Config(ABC):
    """Choices that shape the compiled program, common to all algorithms."""

    steps: int = 20_000
    """Updates of each member of the population."""
    batch_size: int = 256
    widths: tuple[int, ...] = (256, 256)
    """Hidden layers of every network."""
    cosine_decay: bool = True
    """Learning rates fall to zero along a cosine."""
    standardise: bool = True
    """Learn in standard units (see docs/training.md)."""

    @abstractmethod
    def actor(self, actions: int) -> Acts:
        """What draws actions of so many numbers."""

    def fit_behaviour(self, logs: Logs) -> Any:
        """What all members share and begin with: a model of the logged actions, if the algorithm wants one."""
        return None


@dataclass(frozen=True)
class MixtureConfig(Config):
    """Of algorithms that clone logged actions, each with a weight, into a mixture of Gaussians."""

    components: int = 3
    """Gaussians in the actor's mixture."""
    squash: bool = False
    """Bring actions into their bounds by tanh, as the paper does, rather than by clipping."""

    def clone(self, actions: int) -> Actor:
        """What clones actions of so many numbers; it is the actor, unless that is said to be another."""
        return Actor(actions, self.widths, self.components, self.squash)

    def actor(self, actions: int) -> Acts:
        return self.clone(actions)


class Hypers(NamedTuple):
    """Numbers that may differ between the members of one compiled population."""

    alpha: Any
    """Weight of the divergence, in what the reward's deviation amounts to over the steps that values look ahead."""
    episode_limit: Any = None
    """Cost limit, undiscounted sum over an episode; None, as all that follows of it, where no limit is trained for."""
    per_step_limit: Any = None
    """The same limit in the unit of DICE estimates."""
    episode_per_step: Any = None
    """What one unit of a DICE estimate amounts to in an episode."""
    safe_rows: Any = None
    """How many rows, of those sorted by the cost of their episode, belong to episodes within the limit."""
    discount: Any = 0.99
    learning_rate: Any = 1e-3
    target_rate: Any = 0.03
    """Of the network that follows Q."""
    multiplier_rate: Any = 1e-2
    """Of Algorithm 1's λ."""
    multiplier: Any = 0.0
    """λ at the start, in standard units."""


def descend(
    config: Config, hypers: Hypers, params: Params, gradients: Params, optimiser: Any, step: jax.Array
) -> tuple[Params, Any]:
    """One step of Adam on everything, at the learning rate of this step."""
    direction, optimiser = ADAM.update(gradients, optimiser)
    rate = hypers.learning_rate * decay(config, step)
    return jax.tree.map(lambda p, d: p - rate * d, params, direction), optimiser


def per_episode(hypers: Hypers, per_step: jax.Array) -> jax.Array:
    """A cost in the unit of DICE estimates as an undiscounted sum over an episode, converted as the limit is."""
    return per_step * hypers.episode_per_step


def cost_metrics(hypers: Hypers, logs: Logs, multiplier: jax.Array, episode_cost: jax.Array) -> Metrics:
    """λ in raw units, and the estimated cost beside its limit."""
    return {
        "multiplier": multiplier * logs.units.reward_scale / logs.units.cost_scale,
        "estimated_cost": episode_cost,
        "cost_limit": jnp.asarray(hypers.episode_limit, jnp.float32),
    }


def weight_metrics(w: jax.Array) -> Metrics:
    return {
        "mean_correction": w.mean(),
        "effective_sample_size": w.sum() ** 2 / jnp.maximum((w**2).sum(), 1e-12) / len(w),
        "zero_weights": (w == 0).mean(),
    }


ADAM = optax.scale_by_adam()


def decay(config: Config, step: jax.Array) -> jax.Array | float:
    return 0.5 * (1 + jnp.cos(jnp.pi * step / config.steps)) if config.cosine_decay else 1.0
