"""What an off-policy estimate is: numbers with intervals, and what tells how far to trust them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from corsdice.costs import LimitOn

RESAMPLES = 2_000
LEVEL = 0.95
QUANTITIES = ("return", "cost")


class Interval(NamedTuple):
    value: float
    low: float
    high: float


class Risk(NamedTuple):
    """What the dear episodes of a policy cost."""

    quantile: Interval
    """What nine in ten episodes stay within."""
    cvar: Interval
    """The mean of the dearest tenth."""


def limited(cost: Interval, risk: Risk, limit_on: LimitOn) -> Interval:
    """What of a policy's cost a limit is put on."""
    return {"mean": cost, "quantile": risk.quantile, "cvar": risk.cvar}[limit_on]


class Sums(NamedTuple):
    """What an episode returns and costs, in one unit."""

    returned: Interval
    cost: Interval


class Diagnostics(NamedTuple):
    """Of the discounted stationary correction w(s,a) of the rows."""

    effective_sample_size: float
    """(Σw)² / Σw², in episodes: how many the estimate in effect rests on."""
    effective_share: float
    """The same as a share of the rows."""
    mean_correction: float
    """E_D[w]; 1 without terminations, less by the share of discounted time after them."""
    negative_share: float
    """Share of the corrections' mass that is below zero, which no true correction is."""
    flow_residual: float
    """By how much features that took no part in the solution miss the flow equations, in their deviations."""
    outside: float
    """Share of the policy's actions that are unlike what the logs hold where it goes; one in a hundred of the logs'
    own are."""
    corrections: np.ndarray
    """[rows] w(s,a)"""


class Estimate(NamedTuple):
    discounted: Sums
    """Σ_t γ^t x_t of the process that no time limit cuts off."""
    diagnostics: Diagnostics | None
    """None for estimators without corrections."""


class EpisodeEstimate(NamedTuple):
    """Of an estimator that knows of time, so of the unit in which people state limits."""

    discounted: Sums
    """Σ_t γ^t x_t of the process that no time limit cuts off."""
    episode: Sums
    """Σ_t x_t up to the time limit."""
    diagnostics: Diagnostics


def bootstrap(
    values: Sequence[float],
    influences: Sequence[np.ndarray],
    reachable: tuple[float, float],
    seed: int = 0,
) -> Interval:
    """The first of the estimates, with what drawing the episodes again would do to each.

    `influences` [episodes] tell how each episode bears on an estimate, to first order. The interval reaches from the
    lowest to the highest of theirs. All is held to what can be reached.
    """
    count = len(influences[0])
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), RESAMPLES) / count
    redrawn = [value + draws @ (each - each.mean()) for value, each in zip(values, influences, strict=True)]
    low, high = np.quantile(redrawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
    return Interval(*(float(np.clip(number, *reachable)) for number in (values[0], low.min(), high.max())))
