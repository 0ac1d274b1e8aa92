"""What the policies of a run return and cost, estimated from logs, written beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.algorithms import by_name
from corsdice.algorithms.logs import Batch, batch_of
from corsdice.data.dataset import Dataset
from corsdice.files import write_json
from corsdice.losses import corrected_mean
from corsdice.ope import Estimate, estimator, judge
from corsdice.policy import Policy
from corsdice.training import directory
from corsdice.training.run import Outcome

BINS = 40
NAIVE = ("corsdice", "semidice", "naive-semidice")
"""Algorithms whose w is a policy correction, which the naive estimate mistakes for a stationary one."""


def assess(
    run: Path, held_out: Dataset, estimate: Callable[[Policy], Estimate] | None = None, save: bool = True
) -> list[dict[str, Any]]:
    """One record for each member of a run; `held_out` are logs that it was not trained on.

    Runs on the same logs can share an `estimate`, which `ope.estimator` makes.
    """
    outcome = directory.load_outcome(run, held_out)
    estimate = estimate or estimator(held_out, outcome.units, outcome.plan.horizon)
    results = []
    for index, member in enumerate(outcome.plan.members):
        found = estimate(outcome.policy(index))
        verdict = judge(found, member.limit.episode)
        counts, edges = np.histogram(found.corrections, BINS)
        results.append(
            {
                "member": member.name,
                "cost_limit": member.limit.episode,
                "unit": f"undiscounted sum over an episode of {outcome.plan.horizon} steps",
                "return": found.episode_return._asdict(),
                "cost": found.episode_cost._asdict(),
                "naive_cost": naive_cost(outcome, index, held_out),
                "effective_sample_size": found.effective_share,
                "mean_correction": found.mean_correction,
                "flow_residual": found.flow_residual,
                "verdict": verdict.verdict,
                "reason": verdict.reason,
                "words": str(verdict),
                "weights": {"edges": edges.tolist(), "counts": counts.tolist()},
            }
        )
    if save:
        write_json(run / directory.ESTIMATES, {"results": results})
    return results


def naive_cost(outcome: Outcome, index: int, dataset: Dataset) -> float | None:
    """E_D[w(a|s) c] as if it were the cost of an episode: what extraction is there to put right."""
    if outcome.plan.algorithm not in NAIVE:
        return None
    module = by_name(outcome.plan.algorithm).module
    batch = Batch(*map(jnp.asarray, batch_of(dataset, outcome.units)))
    hypers, logs, state = jax.tree.map(lambda leaf: leaf[index], (outcome.hypers, None, outcome.states))
    w = module.corrections(outcome.plan.config, hypers, logs, state, batch)
    member = outcome.plan.members[index]
    per_step = corrected_mean(w, jnp.asarray(dataset.costs), batch.terminals, outcome.plan.discount)
    return float(per_step * member.limit.episode_per_step)
