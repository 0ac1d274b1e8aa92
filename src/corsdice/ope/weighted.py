"""What any stationary correction w(s,a) of the rows says of the discounted return and cost."""

from __future__ import annotations

import numpy as np

from corsdice.ope.diagnose import diagnose
from corsdice.ope.estimate import Estimate, Sums, bootstrap
from corsdice.ope.evidence import Evidence, Question


def weighted_estimate(evidence: Evidence, question: Question, corrections: np.ndarray) -> Estimate:
    """E_D[w x] / (1-γ), w made to sum as it must (`losses.corrected_mean`), with an interval over episodes.

    A ratio of two means moves, to first order, by (w x - ratio · w mass) / mean mass with each row.
    """
    w = np.asarray(corrections, np.float64)
    discount = evidence.discount
    mass = w * (1 + discount / (1 - discount) * (1 - np.asarray(evidence.alive)))
    sums = []
    for quantity, values in enumerate(evidence.values):
        ratio = float((w * values).mean() / mass.mean())
        influence = evidence.episode_means(w * values - ratio * mass) / mass.mean() / (1 - discount)
        steps = 1 / (1 - discount)
        sums.append(bootstrap([ratio * steps], [influence], evidence.reachable(quantity, steps)))
    return Estimate(Sums(*sums), diagnose(evidence, question, w))
