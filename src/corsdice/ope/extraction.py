"""A policy's return and cost by extraction in closed form (see `corsdice.extraction`), with an interval over episodes.

Episodes, drawn again with replacement by how they bear on the estimate (`ope.influence`), give the interval. It holds
what the choice of logs does and, by a second estimate with coarser features, something of what the choice of features
does; what no feature can tell it does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.errors import UserError
from corsdice.extraction import Basis, Model, fit_basis, relevance
from corsdice.ope import fqe
from corsdice.ope.chunks import Chunks, chunks_of, corrections_of, fit_chunks, in_order, phi_of
from corsdice.ope.diagnose import diagnose
from corsdice.ope.estimate import EpisodeEstimate, Sums, bootstrap
from corsdice.ope.evidence import Evidence, Question
from corsdice.ope.influence import Influence, influences
from corsdice.ope.networks import Training, fit, rows_of

WAVES, COARSE_WAVES = 1000, 300
"""Of the estimate, and of a second one that widens the interval where it disagrees: where the logs are thin, fine and
coarse features go on differently, and nothing in the logs says which is right."""
ROWS_PER_WAVE = 100
"""Fewer rows than this for each random feature would make the corrections noisy."""
CRITIC_STEPS, CRITIC_WIDTHS = 6_000, (64, 64)
ROWS_PER_STEP = 8
"""Of the fitted Q whose values are two more features: at most so many steps, on few rows fewer. Right or wrong, it can
only add to what the waves can express: where cost jumps they are too smooth, and there it is not."""
SKETCH = 8
"""Chunks that are enough to find where a policy goes; the estimate itself takes all."""


class _Solution(NamedTuple):
    discounted: jax.Array
    """[2] return and cost, as `episode`"""
    episode: jax.Array
    discounted_influence: np.ndarray
    """[2, episodes], as `episode_influence`"""
    episode_influence: np.ndarray
    corrections: np.ndarray
    """[rows] w(s,a), discounted"""


def estimator(
    evidence: Evidence,
    *,
    states: bool = False,
    waves: tuple[int, ...] = (WAVES, COARSE_WAVES),
    seed: int = 0,
) -> Callable[[Question], EpisodeEstimate]:
    """A function that tells what a policy would return and cost; what all policies share is computed once.

    With features of state and action the policy is known by its actions. With `states` it is known by its policy
    correction w(a|s), and features of the state alone carry w(s): that is π_w, whose actor may be another policy.
    The estimate is by the first number of waves; the others have a part in the interval alone.
    """
    inputs = np.asarray(evidence.observations if states else evidence.pairs)
    enough = max(1, evidence.rows // ROWS_PER_WAVE)
    method = None if states else fqe.method_for(evidence)  # of the logs, so that all policies share what is compiled
    bases = [fit_basis(inputs, min(count, enough), seed + draw) for draw, count in enumerate(waves)]

    def estimate(question: Question) -> EpisodeEstimate:
        with ThreadPoolExecutor(2) as beside:  # half of an estimate's time is compiling, which keeps one core busy
            solutions = list(beside.map(_solver(evidence, question, method, seed), bases))
        corrections = solutions[0].corrections
        if states:
            corrections = corrections * np.asarray(question.policy_correction)
        return EpisodeEstimate(
            discounted=_sums(solutions, "discounted", evidence, 1 / (1 - evidence.discount), seed),
            episode=_sums(solutions, "episode", evidence, evidence.horizon, seed),
            diagnostics=diagnose(evidence, question, corrections, seed),
        )

    return estimate


def _sums(solutions: list[_Solution], name: str, evidence: Evidence, steps: float, seed: int) -> Sums:
    return Sums(
        *(
            bootstrap(
                [float(getattr(each, name)[quantity]) for each in solutions],
                [getattr(each, f"{name}_influence")[quantity] for each in solutions],
                evidence.reachable(quantity, steps),
                seed,
            )
            for quantity in range(2)
        )
    )


def _solver(evidence: Evidence, question: Question, method: fqe.FQE | None, seed: int) -> Callable[[Basis], _Solution]:
    """With features of states and actions, and what a fitted Q thinks of them, or of states alone without a method."""
    of = _of_states(evidence, question) if method is None else _of_actions(evidence, question, method, seed)
    chunks, pairs, critic = of
    return lambda basis: _solve(basis, evidence, chunks, phi_of(basis, pairs, critic))


def _solve(basis: Basis, evidence: Evidence, chunks: Chunks, start: jax.Array) -> _Solution:
    model, weights = _fit_where_policy_goes(basis, evidence, chunks, start)
    discounted, episode = influences(basis, chunks, weights, model, evidence.horizon, evidence.discount)

    def by_episode(influence: Influence) -> np.ndarray:
        rows, first = in_order(influence.rows, evidence.rows), influence.first
        return np.stack([evidence.episode_means(rows[:, q]) + np.asarray(start @ first[:, q]) for q in range(2)])

    return _Solution(
        jax.device_get(model.initial @ discounted.first),
        jax.device_get(model.initial @ episode.first),
        by_episode(discounted),
        by_episode(episode),
        (1 - evidence.discount) * in_order(discounted.corrections, evidence.rows),
    )


def _fit_where_policy_goes(
    basis: Basis, evidence: Evidence, chunks: Chunks, start: jax.Array
) -> tuple[Model, jax.Array]:
    """On all rows, weighted by where a solution on a sample of them says that the policy goes; and the weights."""
    count, initial = len(chunks.real), start.mean(0)
    sketch = fit_chunks(basis, chunks, chunks.real, initial, min(SKETCH, count))
    weights = chunks.real * relevance(chunks.real * corrections_of(basis, chunks, sketch, evidence.discount))
    return fit_chunks(basis, chunks, weights, initial, count), weights


def _of_actions(
    evidence: Evidence, question: Question, method: fqe.FQE, seed: int
) -> tuple[Chunks, jax.Array, jax.Array]:
    """φ of states and actions, and the policy's first pairs."""
    training = Training(max(1, min(CRITIC_STEPS, evidence.rows // ROWS_PER_STEP)), widths=CRITIC_WIDTHS)
    rows, starts = rows_of(evidence, question, corrected=False)
    params = fit(method, training, rows, starts, evidence.discount, jax.random.key(seed))
    normalised = jax.jit(method.normalised, static_argnums=2)
    here, then, start = (
        normalised(params, pairs, training.widths) for pairs in (rows.pairs, rows.next_pairs, starts.pairs)
    )
    return chunks_of(rows.pairs, rows.next_pairs, here, then, rows.alive, rows.values), starts.pairs, start


def _of_states(evidence: Evidence, question: Question) -> tuple[Chunks, jax.Array, jax.Array]:
    """φ of states: w(a|s) weighs what comes of the logged action, E_D[w_{t+1} φ(s)] = E_D[w_t w(a|s) φ(s')]."""
    w = question.policy_correction
    if w is None:
        raise UserError("extraction of π_w begins with w(a|s): give a policy correction, or fit one (ope.behaviour)")
    values = w[:, None] * jnp.asarray(evidence.values.T)
    none = jnp.zeros((evidence.rows, 0))
    chunks = chunks_of(evidence.observations, evidence.next_observations, none, none, evidence.alive * w, values)
    return chunks, evidence.initial_observations, none[: len(evidence.initial_observations)]
