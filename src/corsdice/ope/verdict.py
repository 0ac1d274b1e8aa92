"""Whether a policy respects a cost limit, in plain words."""

from __future__ import annotations

from typing import Literal, NamedTuple

from corsdice.ope.extraction import Estimate

FEWEST_EPISODES = 10.0
LARGEST_RESIDUAL = 0.1
LARGEST_NEGATIVE = 0.2


class Verdict(NamedTuple):
    verdict: Literal["meets", "violates", "unknown"]
    reason: str

    def __str__(self) -> str:
        word = {"meets": "meets the limit", "violates": "does not meet the limit", "unknown": "cannot be told"}
        return f"{word[self.verdict]}: {self.reason}"


def judge(estimate: Estimate, episode_limit: float) -> Verdict:
    """Meets or violates only where the whole interval lies on one side and the diagnostics let the estimate stand."""
    value, low, high = estimate.episode_cost
    if not estimate.effective_sample_size >= FEWEST_EPISODES:  # nor where it is no number
        return Verdict(
            "unknown", f"the logs hold the like of only {estimate.effective_sample_size:.1f} episodes of this policy"
        )
    if not (estimate.flow_residual <= LARGEST_RESIDUAL and estimate.negative_share <= LARGEST_NEGATIVE):
        return Verdict("unknown", "the policy leaves what the logs cover, so the corrections do not add up")
    told = f"cost {value:.3g}, 95 % interval {low:.3g} to {high:.3g}, limit {episode_limit:.6g}"
    if high <= episode_limit:
        return Verdict("meets", told)
    if low > episode_limit:
        return Verdict("violates", told)
    return Verdict("unknown", f"{told}: the interval holds the limit")
