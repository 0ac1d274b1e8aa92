"""Whether a policy respects a cost limit, in plain words."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from corsdice.ope.estimate import Interval

LARGEST_STRANGE = 0.1


class Verdict(NamedTuple):
    verdict: Literal["meets", "violates", "unknown"]
    reason: str

    def __str__(self) -> str:
        word = {"meets": "meets the limit", "violates": "does not meet the limit", "unknown": "cannot be told"}
        return f"{word[self.verdict]}: {self.reason}"


def judge(cost: Interval, strange: float, limit: float) -> Verdict:
    """Meets or violates only where the whole interval lies on one side, and the logs know where the policy goes.

    `strange` is the share of imagined states that are unlike the logged ones. `cost` and `limit` are in the same unit.
    """
    if not strange <= LARGEST_STRANGE:  # so written that what is no number does not pass
        return Verdict("unknown", f"{strange:.0%} of where the policy goes is unlike anything in the logs")
    told = f"cost {cost.value:.3g}, 95 % interval {cost.low:.3g} to {cost.high:.3g}, limit {limit:.6g}"
    if cost.high <= limit:
        return Verdict("meets", told)
    if cost.low > limit:
        return Verdict("violates", told)
    return Verdict("unknown", f"{told}: the interval holds the limit")


def preference(verdict: str, returned: float, highest_cost: float, limit: float) -> tuple[bool, float]:
    """The larger, the sooner a policy is to be taken, by its estimate alone.

    Those that meet their limit come first, by their return; then the others, by how little over it they may cost.
    """
    if verdict == "meets":
        return True, returned
    excess = highest_cost - limit
    return False, -math.inf if math.isnan(excess) else -excess
