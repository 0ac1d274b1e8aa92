"""The frontier of a trained family, from logs alone: every way to act at many λ, imagined by one compiled program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.conditions import AXES, Point, condition_of
from corsdice.dynamics import Model
from corsdice.ope.frontier import Frontier, FrontierPoint, refined
from corsdice.ope.imagined import Ensemble, ensemble_of
from corsdice.policy_family import PolicyFamily

COARSE = {"multiplier": 9, "imitation": 5}
"""Values of each at first, evenly over its range."""
AT_ONCE = 16
"""Policies imagined side by side, by one compiled program."""
REFINEMENTS = 10
"""Rounds of so many further policies of each member."""


def trace(
    family: PolicyFamily,
    members: Sequence[int],
    models: Sequence[Model],
    starts: np.ndarray,
    horizon: int,
    rows: int,
    progress: Callable[[str], None],
) -> Frontier:
    """Return and cost of the efficient policies of each way, each imagined for so many rows by all models together.

    Which are efficient is seen at a glance, by half of the models, and forgotten then: luck had a part in it.
    `starts` [n, O] are first states, in standard units. `progress` is called after each round of a member.
    """
    ensemble = ensemble_of(models, jnp.asarray(starts), horizon, rows)
    half = ensemble._replace(models=models[: -(-len(models) // 2)], key=jax.random.fold_in(ensemble.key, 1))
    found: list[FrontierPoint] = []
    for member in members:
        glance, whole = _Imagination(family, member, half), _Imagination(family, member, ensemble)
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
    values = {name: axis.at(np.linspace(0, 1, COARSE[name])).tolist() for name, axis in AXES.items()}
    return [
        Point(way, multiplier, imitation)
        for way in ways
        for imitation in (values["imitation"] if way == "improved" else (None,))
        for multiplier in values["multiplier"]
    ]


class _Imagination(NamedTuple):
    """What models imagine of one member's policies."""

    family: PolicyFamily
    member: int
    ensemble: Ensemble

    def of(self, points: Sequence[Point]) -> list[FrontierPoint]:
        return [
            found
            for way, of_way in groupby(sorted(points), lambda point: point.way)
            for same in [list(of_way)]
            for first in range(0, len(same), AT_ONCE)
            for found in self._of_batch(way, same[first : first + AT_ONCE])
        ]

    def _of_batch(self, way: str, points: list[Point]) -> list[FrontierPoint]:
        filled = points + points[-1:] * (AT_ONCE - len(points))  # one shape, compiled once
        conditions = jnp.stack(list(map(condition_of, filled)))
        told = self.ensemble.of_family(self.family.ways[way], self.family.networks[self.member][way], conditions)
        return [
            FrontierPoint(self.member, point, *each.sums, each.strange, each.episodes.risk)
            for point, each in zip(points, told[: len(points)], strict=True)
        ]
