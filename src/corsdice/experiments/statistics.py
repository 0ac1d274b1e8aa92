"""Interquartile means with stratified bootstrap intervals, for few seeds on many tasks.

After Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical Precipice". A stratum is a
task: its seeds are drawn again among themselves, so that no draw has more of an easy task than was measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from corsdice.ope.estimate import LEVEL, RESAMPLES, Interval


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Along the last axis, the mean of what is left when a quarter of the values, rounded down, is cut at each end."""
    count = values.shape[-1]
    return np.sort(values, axis=-1)[..., count // 4 : count - count // 4].mean(-1)


def interquartile_interval(strata: Sequence[np.ndarray], seed: int = 0) -> Interval:
    """The interquartile mean of all values together, with percentiles of it over draws within each stratum."""
    generator = np.random.default_rng(seed)
    drawn = [generator.choice(stratum, (RESAMPLES, len(stratum))) for stratum in strata]
    means = interquartile_mean(np.concatenate(drawn, axis=-1))
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(interquartile_mean(np.concatenate(strata))), float(low), float(high))
