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
from corsdice.costs import LIMITED, LimitOn
from corsdice.errors import UserError
from corsdice.ope.estimate import Interval, Risk, limited
from corsdice.ope.verdict import LARGEST_STRANGE, rounded_up

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
    risk: Risk

    def limited(self, limit_on: LimitOn) -> Interval:
        """What of its cost a limit is put on."""
        return limited(self.cost, self.risk, limit_on)

    def to_json(self) -> dict[str, Any]:
        return {
            "member": self.member,
            **self.point._asdict(),
            "return": self.returned._asdict(),
            "cost": self.cost._asdict(),
            "strange": self.strange,
            **{name: each._asdict() for name, each in self.risk._asdict().items()},
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> FrontierPoint:
        return cls(
            int(content["member"]),
            Point(**{name: content[name] for name in Point._fields}),
            Interval(**content["return"]),
            Interval(**content["cost"]),
            float(content["strange"]),
            Risk(*(Interval(**content[name]) for name in Risk._fields)),
        )


class Frontier(NamedTuple):
    """The policies of a family by what they cost."""

    points: tuple[FrontierPoint, ...]

    def choose(self, limit: float, members: Collection[int] | None = None, limit_on: LimitOn = "mean") -> FrontierPoint:
        """The largest return among those whose cost is within the limit, even at the upper end of its interval."""
        chosen = self.nearest(limit, members, limit_on)
        cost = chosen.limited(limit_on)
        if not chosen.strange <= LARGEST_STRANGE:
            raise UserError(
                "the logs do not tell what the policies of this family cost: "
                f"{chosen.strange:.0%} of where the best of them goes is unlike anything in the logs"
            )
        if cost.high > limit:
            raise UserError(
                f"no policy of this family is estimated to have a {LIMITED[limit_on]} of {limit:g} or less: the least "
                f"is {cost.value:.3g} (95 % interval {cost.low:.3g} to {cost.high:.3g}); "
                f"ask for at least {rounded_up(cost.high):g}"
            )
        return chosen

    def nearest(
        self, limit: float, members: Collection[int] | None = None, limit_on: LimitOn = "mean"
    ) -> FrontierPoint:
        """The same where there is one, else the policy of the least cost; a verdict tells what to think of it."""
        known = self.known(members)
        within = [each for each in known if each.limited(limit_on).high <= limit]
        if not within:
            return min(known, key=lambda each: each.limited(limit_on).high)
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
