"""The frontier of a family: what each of its policies returns and costs, and which of them a limit chooses.

All are imagined by the same models from the same first states with the same noise, so that what differs between two
policies is the policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from corsdice.conditions import Point, between
from corsdice.errors import UserError
from corsdice.ope.estimate import Interval
from corsdice.ope.verdict import LARGEST_STRANGE


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
            Point(str(content["way"]), float(content["multiplier"]), content["imitation"]),
            Interval(**content["return"]),
            Interval(**content["cost"]),
            float(content["strange"]),
        )


class Frontier(NamedTuple):
    """The policies of a family by what they cost."""

    points: tuple[FrontierPoint, ...]

    def choose(self, limit: float, member: int | None = None) -> FrontierPoint:
        """The largest return among those whose cost is within the limit, even at the upper end of its interval."""
        chosen = self.nearest(limit, member)
        if chosen.cost.high > limit:
            least = chosen
            raise UserError(
                f"no policy of this family is estimated to cost {limit:g} or less: the least is {least.cost.value:.3g} "
                f"(95 % interval {least.cost.low:.3g} to {least.cost.high:.3g}); ask for at least {least.cost.high:.3g}"
            )
        return chosen

    def nearest(self, limit: float, member: int | None = None) -> FrontierPoint:
        """The same where there is one, else the policy of the least cost."""
        known = self._known(member)
        within = [each for each in known if each.cost.high <= limit]
        if not within:
            return min(known, key=lambda each: each.cost.high)
        return max(within, key=lambda each: each.returned.value)

    def efficient(self, member: int | None = None) -> list[FrontierPoint]:
        """Those that no other beats in both, from the least to the largest cost."""
        found: list[FrontierPoint] = []
        for each in sorted(self._known(member), key=lambda each: (each.cost.value, -each.returned.value)):
            if not found or each.returned.value > found[-1].returned.value:
                found.append(each)
        return found

    def _known(self, member: int | None) -> list[FrontierPoint]:
        """Those that the models know enough of, or all where these are none."""
        asked = [each for each in self.points if member is None or each.member == member]
        return [each for each in asked if each.strange <= LARGEST_STRANGE] or asked

    def to_json(self) -> list[dict[str, Any]]:
        return [each.to_json() for each in self.points]

    @classmethod
    def from_json(cls, content: Iterable[dict[str, Any]]) -> Frontier:
        return cls(tuple(map(FrontierPoint.from_json, content)))


def refined(points: Sequence[FrontierPoint], count: int) -> list[Point]:
    """Further policies of one member: between an efficient one and its neighbours in λ and in imitation.

    Two efficient policies leave a box of cost and return between them. The largest boxes are searched first.
    """
    efficient = Frontier(tuple(points)).efficient()
    boxes = [
        0.0,
        *((b.cost.value - a.cost.value) * (b.returned.value - a.returned.value) for a, b in pairwise(efficient)),
        0.0,
    ]
    found: dict[Point, float] = {}
    for each, below, above in zip(efficient, boxes, boxes[1:], strict=False):
        for other in _neighbours(points, each):
            found[between(each.point, other.point)] = above if other.cost.value > each.cost.value else below
    for each in points:
        found.pop(each.point, None)
    return sorted(found, key=lambda point: (-found[point], point))[:count]


def _neighbours(points: Sequence[FrontierPoint], each: FrontierPoint) -> list[FrontierPoint]:
    """The next in λ, and the next in imitation, up and down, all else equal."""
    way, multiplier, imitation = each.point
    found = []
    along_multiplier = [other for other in points if other.point[::2] == (way, imitation)]
    along_imitation = [other for other in points if other.point[:2] == (way, multiplier) and imitation is not None]
    for line in (along_multiplier, along_imitation):
        line.sort(key=lambda other: other.point)
        if line:
            at = line.index(each)
            found += line[max(at - 1, 0) : at] + line[at + 1 : at + 2]
    return found
