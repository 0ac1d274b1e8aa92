"""The frontier of a trained family, from logs alone: every way to act at many λ, imagined in one compiled program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.actors import Acts
from corsdice.conditions import Point, condition_of, imitation_of, multiplier_of
from corsdice.dynamics import Model, are_strange, imagine
from corsdice.ope.estimate import Interval
from corsdice.ope.frontier import Frontier, FrontierPoint, refined
from corsdice.policy_family import PolicyFamily

POSITIONS = tuple(np.linspace(0, 1, 9).tolist())
"""Of λ, at first."""
REFINEMENTS = (4, 4, 4, 4)
"""Further λ of each way, in rounds: each halves the widest steps of the cost that are left."""
CLOSENESS = tuple(np.linspace(0, 1, 9).tolist())
"""Of the improved actor."""
FEWEST_EPISODES = 64
"""Imagined of each policy."""
DEVIATIONS = 1.96
"""Of a 95 % interval."""


def trace(
    family: PolicyFamily,
    models: Sequence[Model],
    starts: np.ndarray,
    horizon: int,
    rows: int,
    seed: int = 0,
    progress: Callable[[str], None] = lambda told: None,
) -> Frontier:
    """Return and cost of all ways at many λ, each imagined for so many rows.

    `starts` [n, O] are first states, in standard units. `progress` is called after each curve of a way.
    """
    curves = [
        (member, way, closeness)
        for member, way in product(range(len(family.networks)), family.ways)
        for closeness in (CLOSENESS if way == "improved" else (None,))
    ]
    episodes = max(FEWEST_EPISODES, rows // horizon)
    drawn = jnp.asarray(starts[np.random.default_rng(seed).integers(0, len(starts), episodes)])

    def curve(asked: tuple[int, str, float | None]) -> list[FrontierPoint]:
        member, way, closeness = asked
        imitation = None if closeness is None else float(imitation_of(closeness))
        found: dict[float, FrontierPoint] = {}
        positions: Sequence[float] = POSITIONS
        for more in (*REFINEMENTS, 0):
            points = [Point(way, float(multiplier_of(position)), imitation) for position in positions]
            estimates = imagined(family, member, points, models, drawn, horizon, seed)
            found |= dict(zip(positions, estimates, strict=True))
            positions = refined(list(found), [each.cost.value for each in found.values()], more)
        progress(way)
        return list(found.values())

    with ThreadPoolExecutor(2) as beside:  # rollouts this small keep one core busy each
        traced = beside.map(curve, curves)
        return Frontier(tuple(point for points in traced for point in points))


def imagined(
    family: PolicyFamily,
    member: int,
    points: Sequence[Point],
    models: Sequence[Model],
    starts: jax.Array,
    horizon: int,
    seed: int,
) -> list[FrontierPoint]:
    """Points of one way of one member; values are means over the models, and how they differ widens the intervals."""
    conditions = jnp.stack([condition_of(point) for point in points])
    way = points[0].way
    actor, network = family.ways[way], family.networks[member][way]
    key = jax.random.key(seed)
    told = [jax.device_get(_episodes(actor, horizon, model, network, conditions, starts, key)) for model in models]
    found = []
    for i, point in enumerate(points):
        returned, cost = (_interval([each.sums[i, :, quantity] for each in told]) for quantity in range(2))
        strange = float(np.mean([each.strange[i] for each in told]))
        found.append(FrontierPoint(member, point, returned, cost, strange))
    return found


class _Told(NamedTuple):
    sums: jax.Array
    """[points, episodes, 2] returns and costs"""
    strange: jax.Array
    """[points]"""


@partial(jax.jit, static_argnames=("actor", "horizon"))
def _episodes(
    actor: Acts, horizon: int, model: Model, network: Any, conditions: jax.Array, starts: jax.Array, key: jax.Array
) -> _Told:
    def one(condition: jax.Array) -> _Told:
        act = partial(actor.draw, {"network": network, "condition": condition})
        steps, lived = imagine(model, act, starts, horizon, key)
        strange = lived & jax.vmap(partial(are_strange, model))(steps.observations)
        return _Told((lived[..., None] * steps.values).sum(0), strange.sum() / lived.sum())

    return jax.lax.map(one, conditions)


def _interval(sums: Sequence[np.ndarray]) -> Interval:
    """Over episodes [n] of each model, and over the models."""
    means = np.array([each.mean() for each in sums])
    value = float(means.mean())
    by_chance = np.mean([each.var(ddof=1) / len(each) for each in sums]) / len(sums)
    by_model = means.var(ddof=1) if len(means) > 1 else 0.0
    half = DEVIATIONS * float(np.sqrt(by_chance + by_model))
    return Interval(value, value - half, value + half)
