"""The frontier of a trained family, from logs alone: every way to act at many λ, imagined by one compiled program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
CLOSENESS = tuple(np.linspace(0, 1, 9).tolist())
"""Of the improved actor, at first."""
REFINEMENTS = (16, 16, 16, 16)
"""Further policies of each member, in rounds."""
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

    `starts` [n, O] are first states, in standard units. `progress` is called after each round of a member.
    """
    episodes = max(FEWEST_EPISODES, rows // horizon)
    drawn = jnp.asarray(starts[np.random.default_rng(seed).integers(0, len(starts), episodes)])
    found: list[FrontierPoint] = []
    with ThreadPoolExecutor(2) as beside:  # rollouts this small keep one core busy each
        for member in range(len(family.networks)):
            imagined_of = partial(imagined, family, member, models, drawn, horizon, jax.random.key(seed))
            asked = coarse(family.ways)
            known: list[FrontierPoint] = []
            for more in (*REFINEMENTS, 0):
                known += beside.map(imagined_of, asked)
                asked = refined(known, more)
                progress(f"{len(known)} policies")
            found += known
    return Frontier(tuple(found))


def coarse(ways: Iterable[str]) -> list[Point]:
    """All ways at a few λ, the improved one at a few weights of imitation."""
    return [
        Point(way, float(multiplier_of(position)), None if closeness is None else float(imitation_of(closeness)))
        for way in ways
        for closeness in (CLOSENESS if way == "improved" else (None,))
        for position in POSITIONS
    ]


def imagined(
    family: PolicyFamily,
    member: int,
    models: Sequence[Model],
    starts: jax.Array,
    horizon: int,
    key: jax.Array,
    point: Point,
) -> FrontierPoint:
    """One policy of a member; values are means over the models, and how they differ widens the intervals."""
    actor, network = family.ways[point.way], family.networks[member][point.way]
    params = {"network": network, "condition": condition_of(point)}
    told = [jax.device_get(_episodes(actor, horizon, model, params, starts, key)) for model in models]
    returned, cost = (_interval([each.sums[:, quantity] for each in told]) for quantity in range(2))
    return FrontierPoint(member, point, returned, cost, float(np.mean([each.strange for each in told])))


class _Told(NamedTuple):
    sums: jax.Array
    """[episodes, 2] returns and costs"""
    strange: jax.Array


@partial(jax.jit, static_argnames=("actor", "horizon"))
def _episodes(actor: Acts, horizon: int, model: Model, params: Any, starts: jax.Array, key: jax.Array) -> _Told:
    steps, lived = imagine(model, partial(actor.draw, params), starts, horizon, key)
    strange = lived & jax.vmap(partial(are_strange, model))(steps.observations)
    return _Told((lived[..., None] * steps.values).sum(0), strange.sum() / lived.sum())


def _interval(sums: Sequence[np.ndarray]) -> Interval:
    """Over episodes [n] of each model, and over the models."""
    means = np.array([each.mean() for each in sums])
    value = float(means.mean())
    by_chance = np.mean([each.var(ddof=1) / len(each) for each in sums]) / len(sums)
    by_model = means.var(ddof=1) if len(means) > 1 else 0.0
    half = DEVIATIONS * float(np.sqrt(by_chance + by_model))
    return Interval(value, value - half, value + half)
