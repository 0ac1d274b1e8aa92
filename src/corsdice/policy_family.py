"""A family of policies that ships: one file for every cost limit.

    family = corsdice.load("run/family")
    action = family.predict(observation, cost_limit=15)

A file pair, as a policy's: `NAME.safetensors` holds the numbers of all networks, `NAME.json` what they mean and the
frontier, from which a limit chooses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from corsdice.actors import Conditional, describe, described
from corsdice.algorithms.logs import Units
from corsdice.conditions import condition_of
from corsdice.costs import LimitOn
from corsdice.errors import UserError
from corsdice.files import write_json, write_tensors
from corsdice.ope.frontier import Frontier, FrontierPoint
from corsdice.policy import (
    Policy,
    PolicyParams,
    empty_params,
    policy_from,
    read_description,
    read_finite_tensors,
    stem_of,
)

FORMAT = 2


@dataclass(frozen=True)
class PolicyFamily:
    """Every way to act at every λ, of every trained member, and what is thought of them."""

    ways: dict[str, Conditional]
    networks: tuple[dict[str, Any], ...]
    """Of each member, by the name of the way."""
    units: Units
    frontier: Frontier
    abouts: tuple[dict[str, Any], ...]
    """Of each member: shapes, algorithm, hyper-parameters, data."""
    _by_limit: dict[tuple[float, LimitOn], Policy] = field(default_factory=dict, init=False, compare=False, repr=False)

    def at(self, *, cost_limit: float, limit_on: LimitOn = "mean") -> Policy:
        """The policy of the largest estimated return whose cost is estimated to be within the limit."""
        return self.policy(self.frontier.choose(cost_limit, limit_on=limit_on), cost_limit, limit_on)

    def predict(self, observations: Any, *, cost_limit: float, limit_on: LimitOn = "mean") -> np.ndarray:
        """Actions of the policy for this limit; see `Policy.predict`."""
        asked = cost_limit, limit_on
        if asked not in self._by_limit:
            self._by_limit[asked] = self.at(cost_limit=cost_limit, limit_on=limit_on)
        return self._by_limit[asked].predict(observations)

    def policy(self, chosen: FrontierPoint, cost_limit: float | None = None, limit_on: LimitOn = "mean") -> Policy:
        """The policy at a point of the frontier, with what was estimated of it."""
        point = chosen.point
        params = {
            "network": self.networks[chosen.member][point.way],
            "condition": np.asarray(condition_of(point)),
        }
        told = {"return": chosen.returned, "cost": chosen.cost} | chosen.risk._asdict()
        estimate = {name: interval._asdict() for name, interval in told.items()}
        about = self.abouts[chosen.member] | point._asdict() | {"estimate": estimate}
        if cost_limit is not None:
            about |= {"cost_limit": cost_limit, "limit_on": limit_on}
        return Policy(self.ways[point.way], PolicyParams(params, self.units), about)

    def save(self, path: Path | str) -> Path:
        """Writes PATH.safetensors and PATH.json; returns the latter."""
        stem = stem_of(path)
        stem.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(stem.with_name(stem.name + ".safetensors"), (self.networks, self.units))
        target = stem.with_name(stem.name + ".json")
        content = {
            "corsdice_family": FORMAT,
            "ways": {name: describe(actor) for name, actor in self.ways.items()},
            "members": list(self.abouts),
            "frontier": self.frontier.to_json(),
        }
        write_json(target, content)
        return target


def load(path: Path | str) -> Policy | PolicyFamily:
    """The policy or the family that was saved at this path, with or without its suffix."""
    content = read_description(path)
    if "corsdice_family" not in content:
        return policy_from(path, content)
    numbers = stem_of(path).with_name(stem_of(path).name + ".safetensors")
    try:
        if content["corsdice_family"] != FORMAT:
            raise ValueError(f"format {content['corsdice_family']}, this version reads {FORMAT}")
        ways: dict[str, Conditional] = {name: described(actor) for name, actor in content["ways"].items()}
        abouts = tuple(content["members"])
        frontier = Frontier.from_json(content["frontier"])
        columns = int(np.prod(abouts[0]["observation_shape"], dtype=int))
        shapes = {name: empty_params(actor, columns) for name, actor in ways.items()}
        like = tuple({name: each.actor["network"] for name, each in shapes.items()} for _ in abouts)
        units = next(iter(shapes.values())).units
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise UserError(f"{stem_of(path)}.json does not describe a family of policies: {error}") from error
    networks, units = read_finite_tensors(numbers, (like, units))
    return PolicyFamily(ways, jax.tree.map(np.asarray, networks), units, frontier, abouts)


def load_family(path: Path | str) -> PolicyFamily:
    """The family that was saved at this path."""
    family = load(path)
    if not isinstance(family, PolicyFamily):
        raise UserError(f"{path} is one policy, trained for one limit, not a family")
    return family
