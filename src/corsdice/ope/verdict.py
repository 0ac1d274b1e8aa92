"""Whether a policy respects a cost limit, in plain words."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from corsdice.ope.estimate import Diagnostics, Interval

FEWEST_EPISODES = 10.0
LARGEST_RESIDUAL = 0.1
LARGEST_NEGATIVE = 0.2
LARGEST_OUTSIDE = 0.1
LARGEST_STRANGE = 0.1


class Verdict(NamedTuple):
    verdict: Literal["meets", "violates", "unknown"]
    reason: str

    def __str__(self) -> str:
        word = {"meets": "meets the limit", "violates": "does not meet the limit", "unknown": "cannot be told"}
        return f"{word[self.verdict]}: {self.reason}"


def judge(cost: Interval, diagnostics: Diagnostics, limit: float) -> Verdict:
    """Meets or violates only where the whole interval lies on one side and the diagnostics let the estimate stand.

    Where a model knows the policy's ways, what it imagines carries the estimate; elsewhere the logs have to hold enough
    of what the policy does. `cost` and `limit` are in the same unit.
    """
    # Written so that what is no number does not pass.
    if not diagnostics.outside <= LARGEST_OUTSIDE:
        return Verdict("unknown", f"{diagnostics.outside:.0%} of what the policy does is unlike anything in the logs")
    if diagnostics.strange is not None and not diagnostics.strange <= LARGEST_STRANGE:
        return Verdict("unknown", f"{diagnostics.strange:.0%} of where the policy goes is unlike anything in the logs")
    if diagnostics.strange is None and not diagnostics.effective_sample_size >= FEWEST_EPISODES:
        few = f"{diagnostics.effective_sample_size:.1f}"
        return Verdict("unknown", f"the logs hold the like of only {few} episodes of this policy")
    if diagnostics.strange is None and not (
        diagnostics.flow_residual <= LARGEST_RESIDUAL and diagnostics.negative_share <= LARGEST_NEGATIVE
    ):
        return Verdict("unknown", "the policy leaves what the logs cover, so the corrections do not add up")
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
