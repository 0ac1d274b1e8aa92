"""The frontier of a family: what each of its policies returns and costs, and which of them a limit chooses.

All are imagined by the same models from the same first states with the same noise, so that what differs between two
policies is the policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from corsdice.conditions import Point
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
        """The same where there is one, else the policy of the least cost. What the models know little of comes last."""
        known = [each for each in self._of(member) if each.strange <= LARGEST_STRANGE] or self._of(member)
        within = [each for each in known if each.cost.high <= limit]
        if not within:
            return min(known, key=lambda each: each.cost.high)
        return max(within, key=lambda each: each.returned.value)

    def efficient(self, member: int | None = None) -> list[FrontierPoint]:
        """Those that no other beats in both, from the least to the largest cost."""
        found: list[FrontierPoint] = []
        for each in sorted(self._of(member), key=lambda each: (each.cost.value, -each.returned.value)):
            if not found or each.returned.value > found[-1].returned.value:
                found.append(each)
        return found

    def _of(self, member: int | None) -> list[FrontierPoint]:
        return [each for each in self.points if member is None or each.member == member]

    def to_json(self) -> list[dict[str, Any]]:
        return [each.to_json() for each in self.points]

    @classmethod
    def from_json(cls, content: Iterable[dict[str, Any]]) -> Frontier:
        return cls(tuple(map(FrontierPoint.from_json, content)))


def refined(positions: Sequence[float], costs: Sequence[float], count: int) -> list[float]:
    """Further positions of λ, each in the middle of the widest step that the cost takes between two neighbours.

    >>> refined([0.0, 0.5, 1.0], [60.0, 10.0, 0.0], 2)
    [0.25, 0.75]
    """
    known = sorted(zip(positions, costs, strict=True))
    steps = [(abs(b[1] - a[1]), (a[0] + b[0]) / 2) for a, b in pairwise(known)]
    return sorted(position for _, position in sorted(steps, reverse=True)[:count])
