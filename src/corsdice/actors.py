"""Ways to act: what draws an action, hashable by value, and described in a file by its fields.

The usual one is a mixture of Gaussians (`networks.Actor`). Others draw candidates and choose among them, or take noise
away (`diffusion.actors`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from corsdice.conditions import conditioned
from corsdice.diffusion.actors import Diffused, Guided, Resampled
from corsdice.networks import MLP, VAE, Actor, Critic, mode

LATENT_CLIP = 0.5
"""Actions are drawn from the middle of the latent distribution: far out lie those that were hardly ever logged."""


class Acts(Protocol):
    """Pure functions of parameters; observations and actions in standard units."""

    @property
    def actions(self) -> int: ...

    def init(self, key: jax.Array, observations: jax.Array) -> Any: ...

    def draw(self, params: Any, observations: jax.Array, key: jax.Array) -> jax.Array: ...


@dataclass(frozen=True)
class Conditional:
    """A member of a family: an actor that sees, beside each observation, what the family was asked for."""

    actor: Acts
    conditions: int
    """Numbers that it sees of that."""

    @property
    def actions(self) -> int:
        return self.actor.actions

    def init(self, key: jax.Array, observations: jax.Array) -> Any:
        condition = jnp.zeros(self.conditions)
        return {"network": self.actor.init(key, conditioned(observations, condition)), "condition": condition}

    def draw(self, params: Any, observations: jax.Array, key: jax.Array) -> jax.Array:
        return self.actor.draw(params["network"], conditioned(observations, params["condition"]), key)


@dataclass(frozen=True)
class Mode:
    """The centre of a mixture's most probable component: always the same action in the same place."""

    mixture: Actor

    @property
    def actions(self) -> int:
        return self.mixture.actions

    def init(self, key: jax.Array, observations: jax.Array) -> Any:
        return self.mixture.init(key, observations)

    def draw(self, params: Any, observations: jax.Array, key: jax.Array) -> jax.Array:
        return mode(self.mixture.apply(params, observations), squash=self.mixture.squash)


@dataclass(frozen=True)
class Deterministic:
    """One action for each place, by a network."""

    actions: int
    widths: tuple[int, ...]
    layer_norm: bool = False

    @property
    def network(self) -> MLP:
        return MLP(self.widths, self.actions, self.layer_norm)

    def init(self, key: jax.Array, observations: jax.Array) -> Any:
        return self.network.init(key, observations)

    def draw(self, params: Any, observations: jax.Array, key: jax.Array | None = None) -> jax.Array:
        return jnp.tanh(self.network.apply(params, observations))


@dataclass(frozen=True)
class Perturbed:
    """Logged actions, as a VAE draws them, moved by at most `reach` (BCQ, Fujimoto et al., 2019)."""

    actions: int
    widths: tuple[int, ...]
    reach: float = 0.05

    @property
    def vae(self) -> VAE:
        return VAE(self.actions, self.widths)

    @property
    def perturbation(self) -> MLP:
        return MLP(self.widths, self.actions)

    def init(self, key: jax.Array, observations: jax.Array) -> Any:
        actions = jnp.zeros((*observations.shape[:-1], self.actions))
        vae_key, perturbation_key = jax.random.split(key)
        pairs = jnp.concatenate([observations, actions], -1)
        return {
            "vae": self.vae.init(vae_key, observations, actions),
            "perturbation": self.perturbation.init(perturbation_key, pairs),
        }

    def draw(self, params: Any, observations: jax.Array, key: jax.Array) -> jax.Array:
        logged = logged_like(self.vae, params["vae"], observations, key)
        return self.perturb(params["perturbation"], observations, logged)

    def perturb(self, perturbation: Any, observations: jax.Array, actions: jax.Array) -> jax.Array:
        moved = self.perturbation.apply(perturbation, jnp.concatenate([observations, actions], -1))
        return jnp.clip(actions + self.reach * jnp.tanh(moved), -1, 1)


def logged_like(vae: VAE, params: Any, observations: jax.Array, key: jax.Array) -> jax.Array:
    """An action for each observation, as the VAE has seen them."""
    latents = jax.random.normal(key, (*observations.shape[:-1], vae.latents))
    return jnp.tanh(vae.apply(params, observations, jnp.clip(latents, -LATENT_CLIP, LATENT_CLIP), method="decode"))


@dataclass(frozen=True)
class BestOf:
    """Of some candidates the one with the largest Q - λ Q_c, both as cautious as asked for."""

    proposal: Perturbed | Actor
    widths: tuple[int, ...]
    """Of the critics."""
    critics: int = 2
    candidates: int = 10
    caution: float = 0.75

    @property
    def actions(self) -> int:
        return self.proposal.actions

    @property
    def critic(self) -> Critic:
        return Critic(self.widths, self.critics)

    def init(self, key: jax.Array, observations: jax.Array) -> Any:
        proposal_key, q_key, cost_key = jax.random.split(key, 3)
        pairs = jnp.zeros((*observations.shape[:-1], observations.shape[-1] + self.actions))
        return {
            "proposal": self.proposal.init(proposal_key, observations),
            "q": self.critic.init(q_key, pairs),
            "q_cost": self.critic.init(cost_key, pairs),
            "multiplier": jnp.zeros(()),
        }

    def draw(self, params: Any, observations: jax.Array, key: jax.Array) -> jax.Array:
        def candidate(key: jax.Array) -> tuple[jax.Array, jax.Array]:
            actions = self.proposal.draw(params["proposal"], observations, key)
            q, q_cost = self.values(params, observations, actions)
            return actions, q - params["multiplier"] * q_cost

        actions, scores = jax.vmap(candidate)(jax.random.split(key, self.candidates))
        return jnp.take_along_axis(actions, scores.argmax(0)[None, ..., None], 0)[0]

    def values(self, params: Any, observations: jax.Array, actions: jax.Array) -> tuple[jax.Array, jax.Array]:
        return cautious_values(self.critic, self.caution, params, observations, actions)


def cautious_values(
    critic: Critic, caution: float, params: Any, observations: jax.Array, actions: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Q, more of its smallest member than of its largest, and Q_c, the other way round."""
    pairs = jnp.concatenate([observations, actions], -1)
    q, q_cost = critic.apply(params["q"], pairs), critic.apply(params["q_cost"], pairs)
    bold = 1 - caution
    return caution * q.min(0) + bold * q.max(0), caution * q_cost.max(0) + bold * q_cost.min(0)


KINDS: dict[str, type] = {
    "mixture": Actor,
    "conditional": Conditional,
    "mode": Mode,
    "deterministic": Deterministic,
    "perturbed": Perturbed,
    "best-of": BestOf,
    "diffused": Diffused,
    "resampled": Resampled,
    "guided": Guided,
}
READERS: dict[str, Any] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "tuple[int, ...]": lambda row: tuple(map(int, row)),
}
"""Of a field by its type; any other is an actor of its own."""


def describe(actor: Any) -> dict[str, Any]:
    """An actor's kind and fields, as JSON can hold them."""
    kind = next(name for name, each in KINDS.items() if type(actor) is each)
    values = {name: getattr(actor, name) for name in _fields(type(actor))}
    return {"kind": kind} | {
        name: describe(value) if type(value) in KINDS.values() else value for name, value in values.items()
    }


def described(description: Any) -> Any:
    """The actor that `describe` has told of."""
    kind = KINDS[description["kind"]]
    return kind(**{name: READERS.get(told, described)(description[name]) for name, told in _fields(kind).items()})


def _fields(kind: type) -> dict[str, str]:
    """By name and type; a network has two more, which are its library's."""
    return {field.name: str(field.type) for field in dataclasses.fields(kind) if field.name not in ("parent", "name")}
