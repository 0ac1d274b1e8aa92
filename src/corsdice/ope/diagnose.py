"""What tells how far a set of corrections is to be trusted, whichever estimator they are from."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.extraction import Basis, features, fit_basis
from corsdice.ope.estimate import Diagnostics
from corsdice.ope.evidence import Evidence, Question

CHECK_WAVES = 200
CHECK_ROWS = 20_000
"""A mean over so many rows tells a residual that matters from none."""
OUTSIDE = 0.01


def diagnose(evidence: Evidence, question: Question, corrections: np.ndarray, seed: int = 0) -> Diagnostics:
    """Of the discounted stationary corrections w [rows] of the evidence."""
    w = np.asarray(corrections, np.float64)
    share = float(w.sum() ** 2 / (w**2).sum() / len(w))
    generator = np.random.default_rng(seed)
    chosen = np.sort(generator.permutation(len(w))[:CHECK_ROWS])
    here = evidence.pairs[chosen]
    basis = fit_basis(np.asarray(here), min(CHECK_WAVES, max(1, len(chosen) // 30)), seed + 1_000)
    then = jnp.concatenate([evidence.next_observations[chosen], question.next_actions[chosen]], -1)
    start = jnp.concatenate([evidence.initial_observations, question.initial_actions], -1)
    residual, logged, taken = jax.device_get(
        _check(basis, here, then, start, evidence.alive[chosen], jnp.asarray(w[chosen], jnp.float32), evidence.discount)
    )
    weights = np.maximum(w[chosen], 0)
    return Diagnostics(
        effective_sample_size=share * len(evidence.episodes.starts),
        effective_share=share,
        mean_correction=float(w.mean()),
        negative_share=float(-np.minimum(w, 0).sum() / np.abs(w).sum()),
        flow_residual=float(residual),
        outside=_outside(logged, taken, weights),
        corrections=w,
    )


@partial(jax.jit, static_argnames="discount")
def _check(
    basis: Basis, here: jax.Array, then: jax.Array, start: jax.Array, alive: jax.Array, w: jax.Array, discount: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The flow residual, and how unusual for the logs each logged pair and each pair of the policy is."""
    phi, following = features(basis, here), features(basis, then)
    missed = (
        w @ phi / len(w) - (1 - discount) * features(basis, start).mean(0) - discount * (alive * w) @ following / len(w)
    )
    return jnp.sqrt((missed**2).mean()), (phi**2).mean(-1), (following**2).mean(-1)


def _outside(logged: np.ndarray, taken: np.ndarray, weights: np.ndarray) -> float:
    """How much of the policy's pairs is more unusual than all but one in a hundred of the logged ones.

    Unusual is a pair's squared distance in whitened features, the leverage of a regression. Both shares are weighted
    by the corrections, so that being where the logs are thin is not held against a policy, only acting unlike them
    there.
    """
    if not weights.sum() > 0:
        return 1.0
    order = np.argsort(logged)
    mass = np.cumsum(weights[order]) / weights.sum()
    bound = logged[order][min(int(np.searchsorted(mass, 1 - OUTSIDE)), len(order) - 1)]
    return float(weights[taken > bound].sum() / weights.sum())
