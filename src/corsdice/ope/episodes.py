"""What imagined episodes say of a policy, with intervals: means, and the tail that a mean hides.

Everything is a mean over episodes: of what they cost; of whether they cost more than a limit; and, for the dearest
tenth, of q + max(c - q, 0) / TAIL, whose mean is that of the tenth beyond its quantile q (Rockafellar and Uryasev,
2000). So one interval serves all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from corsdice.ope.estimate import Interval, Risk

TAIL = 0.1
"""Share of the episodes that count as dear."""
DEVIATIONS = 1.96
"""Of a 95 % interval."""


class Episodes(NamedTuple):
    """Sums over the episodes of one policy."""

    returns: np.ndarray
    """[models, episodes]"""
    costs: np.ndarray
    """[models, episodes]"""
    logged: int
    """First states that differ; episodes go round them in order."""

    @property
    def returned(self) -> Interval:
        return self.mean(self.returns)

    @property
    def cost(self) -> Interval:
        """No episode earns back what it costs, so the interval stays above 0."""
        return _from_zero(self.mean(self.costs))

    @property
    def risk(self) -> Risk:
        quantile = self._quantile()
        beyond = self.mean(quantile.value + np.maximum(self.costs - quantile.value, 0) / TAIL)
        return Risk(quantile, _from_zero(beyond))

    def share_over(self, limit: float) -> Interval:
        """The share of episodes that cost more than this."""
        share = _from_zero(self.mean(self.costs > limit))
        return share._replace(high=min(share.high, 1.0))

    def mean(self, values: np.ndarray) -> Interval:
        """[models, episodes] over the first states and over the models.

        Each model does without another part of the logs, so how they differ is a jackknife: they share the rest, and
        what other logs would have told differs by more than they do (Efron and Tibshirani, 1993, chapter 11).
        """
        by_start = values.reshape(len(values), -1, self.logged).mean(1) if self.logged > 1 else values
        value, by_chance = float(by_start.mean()), _variance(by_start.mean(0)) / by_start.shape[1]
        by_logs = (len(values) - 1) ** 2 / len(values) * _variance(by_start.mean(1))
        half = DEVIATIONS * float(np.sqrt(by_chance + by_logs))
        return Interval(value, value - half, value + half)

    def _quantile(self) -> Interval:
        """What all but TAIL of the episodes stay within; as far up and down as the share beyond it is uncertain."""
        value = float(np.quantile(self.costs, 1 - TAIL))
        beyond = self.mean(self.costs > value)
        half = (beyond.high - beyond.low) / 2
        low, high = np.quantile(self.costs, np.clip([1 - TAIL - half, 1 - TAIL + half], 0, 1))
        return Interval(value, float(low), float(high))


def _from_zero(interval: Interval) -> Interval:
    return interval._replace(low=max(interval.low, 0.0))


def _variance(values: np.ndarray) -> float:
    return float(values.var(ddof=1)) if len(values) > 1 else 0.0
