"""The frontier of a trained family, from logs alone: every way to act at many λ, imagined by one compiled program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby, product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.actors import Conditional
from corsdice.conditions import Point, condition_of, imitation_of, multiplier_of
from corsdice.dynamics import Model, are_strange, imagine
from corsdice.ope.estimate import Interval
from corsdice.ope.frontier import Frontier, FrontierPoint, refined
from corsdice.policy_family import PolicyFamily

POSITIONS = tuple(np.linspace(0, 1, 9).tolist())
"""Of λ, at first."""
CLOSENESS = tuple(np.linspace(0, 1, 5).tolist())
"""Of the improved actor, at first."""
AT_ONCE = 16
"""Policies imagined side by side, by one compiled program."""
REFINEMENTS = 6
"""Rounds of so many further policies of each member."""
FEWEST_EPISODES = 32
"""Imagined of each policy."""
STEPS_A_LOOK = 10
"""Whether a state is strange is asked at one step of so many: it is dearer than the step itself."""
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
    """Return and cost of the efficient policies of each way, each imagined for so many rows by all models together.

    Which are efficient is seen at a glance, by half of the models, and forgotten then: luck had a part in it.
    `starts` [n, O] are first states, in standard units. `progress` is called after each round of a member.
    """
    generator = np.random.default_rng(seed)
    episodes = max(FEWEST_EPISODES, rows // (horizon * len(models)))
    first, again = (jnp.asarray(starts[generator.integers(0, len(starts), episodes)]) for _ in range(2))
    glance_key, key = jax.random.split(jax.random.key(seed))
    found: list[FrontierPoint] = []
    for member in range(len(family.networks)):
        whole = _Imagination(family, member, models, again, horizon, key)
        glance = whole._replace(models=models[: -(-len(models) // 2)], starts=first, key=glance_key)
        seen = glance.of(coarse(family.ways))
        for _ in range(REFINEMENTS):
            more = refined(seen, AT_ONCE)
            if not more:
                break
            seen += glance.of(more)
            progress(f"{len(seen)} policies")
        by_way = [Frontier(tuple(each for each in seen if each.point.way == way)) for way in family.ways]
        best = [each.point for frontier in by_way for each in frontier.efficient()]
        found += whole.of(best)
        progress(f"{len(best)} of them on the frontier")
    return Frontier(tuple(found))


def coarse(ways: Iterable[str]) -> list[Point]:
    """All ways at a few λ, the improved one at a few weights of imitation."""
    return [
        Point(way, float(multiplier_of(position)), None if closeness is None else float(imitation_of(closeness)))
        for way in ways
        for closeness in (CLOSENESS if way == "improved" else (None,))
        for position in POSITIONS
    ]


class _Imagination(NamedTuple):
    """What models imagine of one member's policies."""

    family: PolicyFamily
    member: int
    models: Sequence[Model]
    starts: jax.Array
    horizon: int
    key: jax.Array

    def of(self, points: Sequence[Point]) -> list[FrontierPoint]:
        """Values are means over the models, and how they differ widens the intervals."""
        batches = [
            same[first : first + AT_ONCE]
            for same in ([*of_way] for _, of_way in groupby(sorted(points), lambda point: point.way))
            for first in range(0, len(same), AT_ONCE)
        ]
        jobs = list(product(batches, self.models))
        with ThreadPoolExecutor(2) as beside:  # programs this small keep one core busy each
            told = list(beside.map(lambda job: self._told(*job), jobs))
        return [
            self._thought(point, [each[place] for each in told[first : first + len(self.models)]])
            for first, batch in zip(range(0, len(jobs), len(self.models)), batches, strict=True)
            for place, point in enumerate(batch)
        ]

    def _told(self, points: list[Point], model: Model) -> list[_Told]:
        filled = points + points[-1:] * (AT_ONCE - len(points))
        way = points[0].way
        network = self.family.networks[self.member][way]
        conditions = jnp.stack(list(map(condition_of, filled)))
        told = _episodes(self.family.ways[way], self.horizon, model, network, conditions, self.starts, self.key)
        return [_Told(*row) for row in zip(*jax.device_get(told), strict=True)][: len(points)]

    def _thought(self, point: Point, told: Sequence[_Told]) -> FrontierPoint:
        returned, cost = (_interval([each.sums[:, quantity] for each in told]) for quantity in range(2))
        return FrontierPoint(self.member, point, returned, cost, float(np.mean([each.strange for each in told])))


class _Told(NamedTuple):
    sums: Any
    """[episodes, 2] returns and costs"""
    strange: Any


@partial(jax.jit, static_argnames=("actor", "horizon"))
def _episodes(
    actor: Conditional,
    horizon: int,
    model: Model,
    network: Any,
    conditions: jax.Array,
    starts: jax.Array,
    key: jax.Array,
) -> _Told:
    """Of one network at each of the conditions, with the same noise."""

    def at(condition: jax.Array) -> _Told:
        params = {"network": network, "condition": condition}
        steps, lived = imagine(model, partial(actor.draw, params), starts, horizon, key)
        seen, going = steps.observations[::STEPS_A_LOOK], lived[::STEPS_A_LOOK]
        strange = going & jax.vmap(partial(are_strange, model))(seen)
        return _Told((lived[..., None] * steps.values).sum(0), strange.sum() / going.sum())

    return jax.vmap(at)(conditions)


def _interval(sums: Sequence[np.ndarray]) -> Interval:
    """Over episodes [n] of each model, and over the models, any of which may be the one that is right."""
    means = np.array([each.mean() for each in sums])
    value = float(means.mean())
    by_chance = np.mean([each.var(ddof=1) / len(each) for each in sums]) / len(sums)
    by_model = means.var(ddof=1) if len(means) > 1 else 0.0
    half = DEVIATIONS * float(np.sqrt(by_chance + by_model))
    return Interval(value, value - half, value + half)
