"""The policy that ships: an actor's parameters, the units it was trained in, and where it comes from.

A file pair: `NAME.safetensors` holds the numbers, `NAME.json` what they mean. Nothing is unpickled.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from corsdice.actors import Acts, describe, described
from corsdice.algorithms.logs import Units
from corsdice.errors import UserError
from corsdice.files import read_tensors, write_json, write_tensors

FORMAT = 2


class PolicyParams(NamedTuple):
    """Everything a policy computes with: a pytree, so policies of one shape can be stacked and run side by side."""

    actor: Any
    units: Units


@dataclass(frozen=True)
class Act:
    """(params, key, observation [..., D]) -> action [..., A], pure.

    Hashable by value, so one compilation serves every policy of a shape.
    """

    actor: Acts

    def __call__(self, params: PolicyParams, key: jax.Array, observation: jax.Array) -> jax.Array:
        units = params.units
        standard = (observation - units.observation_shift) / units.observation_scale
        action = self.actor.draw(params.actor, standard, key)
        return action * units.action_scale + units.action_shift


@dataclass(frozen=True)
class Policy:
    """A trained policy. `predict` is for people with arrays, `act` for compiled programs."""

    actor: Acts
    params: PolicyParams
    about: dict[str, Any]
    """Shapes, algorithm, hyper-parameters, cost limit, estimate, data and versions: what the JSON file holds."""
    _generator: np.random.Generator = field(
        default_factory=np.random.default_rng, init=False, repr=False, compare=False
    )
    """Of the noise of `predict`."""

    @property
    def act(self) -> Act:
        return Act(self.actor)

    def seed(self, seed: int) -> Policy:
        """Makes the draws of `predict` from here on repeatable; returns this policy, not another."""
        self._generator.bit_generator.state = np.random.default_rng(seed).bit_generator.state
        return self

    def predict(self, observations: Any) -> np.ndarray:
        """Actions for one observation or for many, of the shapes in the logs, drawn anew in each call.

        The policy is stochastic, and its estimate speaks of independent draws: the same noise in every step would be
        another policy with another cost. `seed` makes them repeatable.
        """
        shape = tuple(self.about["observation_shape"])
        observations = np.asarray(observations, np.float32)
        if observations.shape[observations.ndim - len(shape) :] != shape or not np.isfinite(observations).all():
            raise UserError(f"predict needs finite observations of shape {shape}, got shape {observations.shape}")
        lead = observations.shape[: observations.ndim - len(shape)]
        rows = observations.reshape(*lead, int(np.prod(shape)))
        words = self._generator.integers(2**32, size=2, dtype=np.uint32)
        actions = _predict(self.act, self.params, words, rows)
        return np.asarray(actions).reshape(*lead, *self.about["action_shape"])

    def save(self, path: Path | str) -> Path:
        """Writes PATH.safetensors and PATH.json; returns the latter."""
        stem = stem_of(path)
        stem.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(stem.with_name(stem.name + ".safetensors"), self.params)
        target = stem.with_name(stem.name + ".json")
        write_json(target, {"corsdice_policy": FORMAT, "actor": describe(self.actor), "about": self.about})
        return target


@partial(jax.jit, static_argnames="act")
def _predict(act: Act, params: PolicyParams, words: jax.Array, rows: jax.Array) -> jax.Array:
    """Actions whose noise is told by two words of 32 bits: JAX takes no more than one of them as a seed."""
    return act(params, jax.random.fold_in(jax.random.key(words[0]), words[1]), rows)


def load(path: Path | str) -> Policy:
    """The policy that `Policy.save` wrote at this path, with or without its suffix; one of finite numbers alone."""
    return policy_from(path, read_description(path))


def read_description(path: Path | str) -> dict[str, Any]:
    """What the JSON file of a policy, or of a family of them, holds."""
    description = _beside(path, ".json")
    try:
        content = json.loads(description.read_text())
    except OSError as error:
        raise UserError(
            f"cannot read {description}: {error.strerror}; a policy is a .json and a .safetensors"
        ) from error
    except ValueError as error:
        raise UserError(f"{description} does not describe a policy: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{description} does not describe a policy")
    return content


def policy_from(path: Path | str, content: dict[str, Any]) -> Policy:
    """The policy that a description tells of, with the numbers beside it."""
    description = _beside(path, ".json")
    try:
        if "corsdice_family" in content:
            raise ValueError("it is a family of policies: corsdice.load(PATH).at(cost_limit=...) is one of them")
        if content["corsdice_policy"] != FORMAT:
            raise UserError(f"{description} has format {content['corsdice_policy']}, this version reads {FORMAT}")
        actor: Acts = described(content["actor"])
        about = dict(content["about"])
        columns = int(np.prod(about["observation_shape"], dtype=int))
        if int(np.prod(about["action_shape"], dtype=int)) != actor.actions:
            raise ValueError(f"action_shape {about['action_shape']} does not hold {actor.actions} numbers")
        expected = empty_params(actor, columns)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{description} does not describe a policy: {error}") from error
    return Policy(actor, read_finite_tensors(_beside(path, ".safetensors"), expected), about)


def read_finite_tensors(path: Path, like: Any) -> Any:
    """The numbers of a policy, refused unless all are finite."""
    params = read_tensors(path, like)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params)):
        raise UserError(f"{path} has numbers that are not finite: its training has failed; train it again")
    return params


def empty_params(actor: Acts, columns: int) -> PolicyParams:
    """The shapes that the numbers of such a policy must have."""
    variables = jax.eval_shape(actor.init, jax.random.key(0), jax.ShapeDtypeStruct((1, columns), np.float32))
    row = jax.ShapeDtypeStruct((columns,), np.float32)
    action, number = jax.ShapeDtypeStruct((actor.actions,), np.float32), jax.ShapeDtypeStruct((), np.float32)
    return PolicyParams(variables, Units(row, row, action, action, number, number, number, number))  # type: ignore[arg-type]


def _beside(path: Path | str, suffix: str) -> Path:
    stem = stem_of(path)
    return stem.with_name(stem.name + suffix)


def stem_of(path: Path | str) -> Path:
    """The path without the suffix of either file."""
    path = Path(path)
    return path.with_suffix("") if path.suffix in (".json", ".safetensors") else path
