"""Whether a policy respects a cost limit, in plain words."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from corsdice.costs import LIMITED, LimitOn
from corsdice.ope.estimate import Interval

LARGEST_STRANGE = 0.1
MANY = 100
"""Times as many episodes as there are, which nobody will log."""

Words = Literal["meets", "does not meet", "cannot be told"]


class Verdict(NamedTuple):
    verdict: Words
    reason: str

    def __str__(self) -> str:
        limit = "" if self.verdict == "cannot be told" else " the limit"
        return f"{self.verdict}{limit}: {self.reason}"


def judge(cost: Interval, strange: float, limit: float, limit_on: LimitOn = "mean") -> Verdict:
    """Meets or does not meet only where the whole interval lies on one side, and the logs know where the policy goes.

    `strange` is the share of imagined states that are unlike the logged ones. `cost` is what the limit is put on, in
    the unit of the limit.
    """
    if not strange <= LARGEST_STRANGE:  # so written that what is no number does not pass
        return Verdict("cannot be told", f"{strange:.0%} of where the policy goes is unlike anything in the logs")
    told = f"{LIMITED[limit_on]} {cost.value:.3g}, 95 % interval {cost.low:.3g} to {cost.high:.3g}, limit {limit:.6g}"
    if cost.high <= limit:
        return Verdict("meets", told)
    if cost.low > limit:
        return Verdict("does not meet", told)
    return Verdict("cannot be told", f"{told}: the interval holds the limit{_what_would_tell(cost, limit)}")


def _what_would_tell(cost: Interval, limit: float) -> str:
    """What can be promised instead, and how many more logs would narrow the interval to one side of the limit.

    An interval narrows with the root of the number of episodes.
    """
    if not math.isfinite(cost.high):
        return ""
    apart = abs(limit - cost.value)
    times = ((cost.high - cost.value) / apart) ** 2 if apart else math.inf
    more = "no number of logged episodes" if times > MANY else f"about {math.ceil(times)} times as many logged episodes"
    return f"; {rounded_up(cost.high):g} can be promised today, and {more} would tell"


def rounded_up(number: float) -> float:
    """To three digits, none of which makes it less.

    >>> rounded_up(12.3456), rounded_up(0.00512)
    (12.4, 0.00512)
    """
    rounded = float(f"{number:.3g}")
    return rounded if rounded >= number else float(f"{number + abs(number) * 5e-3:.3g}")


def preference(verdict: str, returned: float, highest_cost: float, limit: float) -> tuple[bool, float]:
    """The larger, the sooner a policy is to be taken, by its estimate alone.

    Those that meet their limit come first, by their return; then the others, by how little over it they may cost.
    """
    if verdict == "meets":
        return True, returned
    excess = highest_cost - limit
    return False, -math.inf if math.isnan(excess) else -excess
