"""The frontier of a family: what each of its policies returns and costs, and which of them a limit chooses.

All are imagined by the same models from the same first states with the same noise, so that what differs between two
policies is the policies.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from corsdice.conditions import AXES, Point, between
from corsdice.errors import UserError
from corsdice.ope.estimate import Interval
from corsdice.ope.verdict import LARGEST_STRANGE

NO_COST = 0.01
"""Of the largest cost on a frontier: less than that is next to none."""
LIMITS = 200
"""For which a further policy may be worth something."""
NO_GAIN = 1e-3
"""Of the span of returns on a frontier: a gap that may gain less is left."""


class FrontierPoint(NamedTuple):
    """A policy of a family, and what is thought of it; sums over an episode, undiscounted."""

    member: int
    """Which of the trained populations it belongs to."""
    point: Point
    returned: Interval
    cost: Interval
    strange: float
    """Share of imagined states that are stranger than all but one in a hundred of the logged ones."""

    def to_json(self) -> dict[str, Any]:
        return {
            "member": self.member,
            **self.point._asdict(),
            "return": self.returned._asdict(),
            "cost": self.cost._asdict(),
            "strange": self.strange,
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> FrontierPoint:
        return cls(
            int(content["member"]),
            Point(**{name: content[name] for name in Point._fields}),
            Interval(**content["return"]),
            Interval(**content["cost"]),
            float(content["strange"]),
        )


class Frontier(NamedTuple):
    """The policies of a family by what they cost."""

    points: tuple[FrontierPoint, ...]

    def choose(self, limit: float, members: Collection[int] | None = None) -> FrontierPoint:
        """The largest return among those whose cost is within the limit, even at the upper end of its interval."""
        chosen = self.nearest(limit, members)
        cost = chosen.cost
        if not chosen.strange <= LARGEST_STRANGE:
            raise UserError(
                "the logs do not tell what the policies of this family cost: "
                f"{chosen.strange:.0%} of where the best of them goes is unlike anything in the logs"
            )
        if cost.high > limit:
            raise UserError(
                f"no policy of this family is estimated to cost {limit:g} or less: the least is {cost.value:.3g} "
                f"(95 % interval {cost.low:.3g} to {cost.high:.3g}); ask for at least {_rounded_up(cost.high):g}"
            )
        return chosen

    def nearest(self, limit: float, members: Collection[int] | None = None) -> FrontierPoint:
        """The same where there is one, else the policy of the least cost; a verdict tells what to think of it."""
        known = self.known(members)
        within = [each for each in known if each.cost.high <= limit]
        if not within:
            return min(known, key=lambda each: each.cost.high)
        return max(within, key=lambda each: each.returned.value)

    def efficient(self, members: Collection[int] | None = None) -> list[FrontierPoint]:
        """Those that no other beats in both, from the least to the largest cost."""
        found: list[FrontierPoint] = []
        for each in sorted(self.known(members), key=lambda each: (each.cost.value, -each.returned.value)):
            if not found or each.returned.value > found[-1].returned.value:
                found.append(each)
        return found

    def known(self, members: Collection[int] | None = None) -> list[FrontierPoint]:
        """Those that the models know enough of, or all where these are none."""
        asked = [each for each in self.points if members is None or each.member in members]
        return [each for each in asked if each.strange <= LARGEST_STRANGE] or asked

    def to_json(self) -> list[dict[str, Any]]:
        return [each.to_json() for each in self.points]

    @classmethod
    def from_json(cls, content: Iterable[dict[str, Any]]) -> Frontier:
        return cls(tuple(map(FrontierPoint.from_json, content)))


def _rounded_up(number: float) -> float:
    """To three digits, none of which makes it less.

    >>> _rounded_up(12.3456), _rounded_up(0.00512)
    (12.4, 0.00512)
    """
    rounded = float(f"{number:.3g}")
    return rounded if rounded >= number else float(f"{number + abs(number) * 5e-3:.3g}")


def refined(points: Sequence[FrontierPoint], count: int) -> list[Point]:
    """Further policies of one member: between neighbours along an axis, where limits may gain most.

    What lies between two neighbours is hoped to return as much as the better and to cost as little as the cheaper of
    them. What limits would gain by that, in the mean over limits in proportion, is the worth of a gap.
    """
    frontier = Frontier(tuple(points))
    efficient, known = frontier.efficient(), set(frontier.known())
    largest = efficient[-1].cost.value
    if largest <= 0:
        return []  # the best costs nothing: no limit has anything to gain
    limits = np.geomspace(NO_COST * largest, largest, LIMITS)
    costs = np.array([each.cost.value for each in efficient])
    returns = np.array([efficient[0].returned.value, *(each.returned.value for each in efficient)])
    reached = returns[np.searchsorted(costs, limits, side="right")]

    def worth(one: FrontierPoint, other: FrontierPoint) -> float:
        hoped = max(one.returned.value, other.returned.value) - reached
        allowed = limits >= min(one.cost.value, other.cost.value)
        return float((allowed * np.maximum(hoped, 0)).mean())

    found = {
        between(one.point, other.point): worth(one, other)
        for one, other in _neighbours(points)
        if one in known or other in known
    }
    for each in points:
        found.pop(each.point, None)
    worthwhile = [point for point, gain in found.items() if gain > NO_GAIN * (returns[-1] - returns[0])]
    return sorted(worthwhile, key=lambda point: (-found[point], point))[:count]


def _neighbours(points: Sequence[FrontierPoint]) -> Iterator[tuple[FrontierPoint, FrontierPoint]]:
    """Those that are next to each other along one axis, all else equal."""
    for axis in AXES:
        lines: dict[tuple[Any, ...], list[FrontierPoint]] = {}
        for each in points:
            values = each.point._asdict()
            if values.pop(axis) is not None:
                lines.setdefault(tuple(values.values()), []).append(each)
        for line in lines.values():
            yield from itertools.pairwise(sorted(line, key=lambda each: getattr(each.point, axis)))
