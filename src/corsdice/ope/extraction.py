"""A policy's return and cost by extraction in closed form (see `corsdice.extraction`), with an interval over episodes.

Correction and value are dual: the estimate is Σ_t c · u_t, and with v_t = c + P v_{t+1}, the value of the steps from t
on, it is also v_0 · u_0. Together they say how each logged transition bears on the estimate, to first order:

    ψ = Σ_t w_t(s,a) (x + v_{t+1}(s',a') - v_t(s,a)),

whose sums over whole episodes, drawn again with replacement, give the interval. It holds what the choice of logs does
and, by a second estimate with coarser features, something of what the choice of features does; what no feature can tell
it does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice import linear
from corsdice.errors import UserError
from corsdice.extraction import (
    RIDGE,
    Basis,
    Model,
    correction_coefficients,
    discounted_features,
    features,
    fit_basis,
    fit_model,
    project,
    relevance,
)
from corsdice.ope import fqe
from corsdice.ope.diagnose import diagnose
from corsdice.ope.dynamics import Imagination, joined
from corsdice.ope.estimate import EpisodeEstimate, Sums, bootstrap
from corsdice.ope.evidence import Evidence, Question
from corsdice.ope.networks import Training, fit, rows_of

WAVES, COARSE_WAVES = 1000, 300
"""Of the estimate, and of a second one that widens the interval where it disagrees: where the logs are thin, fine and
coarse features go on differently, and nothing in the logs says which is right."""
WAVES_WITH_MODEL = 700
"""Enough where a model fills the gaps, in half the time; far from the logs, and without it, 1000 are far better."""
ROWS_PER_WAVE = 100
"""Fewer rows than this for each random feature would make the corrections noisy."""
CRITIC_STEPS, CRITIC_WIDTHS = 6_000, (64, 64)
ROWS_PER_STEP = 8
"""Of the fitted Q whose values are two more features: at most so many steps, on few rows fewer. Right or wrong, it can
only add to what the waves can express: where cost jumps they are too smooth, and there it is not."""
BELIEVED = 0.1
"""Largest share of strange states in what a model imagines for it to count. Of safe policies on point tasks it is below
.03, and the model is right; of walking robots .4 and more, and it is mostly wrong. Between, and of policies that are
far from the logs themselves, the share cannot tell whose fault it is, and the model is left out."""
CHUNK = 4096
"""Rows whose features are in memory at a time."""
SKETCH_CHUNKS = 8
"""Enough rows to find where a policy goes; the estimate itself takes all."""
RANK = 32
"""Directions kept of the corrections of all steps of an episode, in the influence of a row: they change slowly with
time, and the rest is below a thousandth of them."""


class _Chunks(NamedTuple):
    """Rows [chunks, CHUNK, ...]; chunk j has every k-th row from the j-th on, so a few chunks are a fair sample."""

    here: jax.Array
    then: jax.Array
    critic_here: jax.Array
    """[chunks, CHUNK, critics] further features: what fitted-Q evaluation thinks of (s, a), and of (s', a')"""
    critic_then: jax.Array
    alive: jax.Array
    """What the features of `then` count for: 0 after a termination"""
    values: jax.Array
    """[chunks, CHUNK, 2]"""
    real: jax.Array
    """0 where the last row of a chunk is padding"""


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
    The estimate is by the first number of waves; the others have a part in the interval alone. What a learned model
    imagines of the policy counts like logs if it looks like them; the diagnostics are of the logs alone.
    """
    inputs = np.asarray(evidence.observations if states else evidence.pairs)
    enough = max(1, evidence.rows // ROWS_PER_WAVE)
    imagination = cache(lambda: Imagination(evidence, seed))

    @cache
    def bases(most: int) -> list[Basis]:
        return [fit_basis(inputs, min(count, most, enough), seed + draw) for draw, count in enumerate(waves)]

    def estimate(question: Question) -> EpisodeEstimate:
        strange = None
        told_by = evidence, question
        if question.act and not states:
            imagined = imagination().episodes(question.act)
            strange = imagination().strange(imagined[0])
            if strange <= BELIEVED:
                told_by = joined(told_by, imagined)
        if told_by[0] is evidence:
            solutions = of_logs = _solutions(bases(max(waves)), evidence, question, states, seed)
        else:
            solutions = _solutions(bases(WAVES_WITH_MODEL), *told_by, states, seed)
            of_logs = _solutions(bases(WAVES_WITH_MODEL)[-1:], evidence, question, states, seed)
        corrections = of_logs[0].corrections
        if states:
            corrections = corrections * np.asarray(question.policy_correction)
        return EpisodeEstimate(
            discounted=_sums(solutions, "discounted", evidence, 1 / (1 - evidence.discount), seed),
            episode=_sums(solutions, "episode", evidence, evidence.horizon, seed),
            diagnostics=diagnose(evidence, question, corrections, seed)._replace(strange=strange),
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
                drawn=len(evidence.episodes.starts),
            )
            for quantity in range(2)
        )
    )


def _solutions(bases: list[Basis], evidence: Evidence, question: Question, states: bool, seed: int) -> list[_Solution]:
    chunks, *start = _of_states(evidence, question) if states else _of_actions(evidence, question, seed)
    return [_solve(basis, evidence, chunks, _phi(basis, *start)) for basis in bases]


def _solve(basis: Basis, evidence: Evidence, chunks: _Chunks, start: jax.Array) -> _Solution:
    sketch = jax.tree.map(lambda array: array[:SKETCH_CHUNKS], chunks)
    model = _fit(basis, sketch, sketch.real, start.mean(0))
    theta = correction_coefficients(model, discounted_features(model, evidence.discount))
    weights = chunks.real * relevance(chunks.real * _corrections(basis, chunks, theta))
    model = _fit(basis, chunks, weights, start.mean(0))
    discounted = _discounted_influence(basis, chunks, weights, model, evidence.discount)
    episode = _episode_influence(basis, chunks, weights, model, evidence.horizon)

    def by_episode(rows: jax.Array, first: jax.Array) -> np.ndarray:
        per_row = _rows(rows, evidence.rows)
        return np.stack([evidence.episode_means(per_row[:, q]) + np.asarray(start @ first[:, q]) for q in range(2)])

    return _Solution(
        jax.device_get(model.initial @ discounted.first),
        jax.device_get(model.initial @ episode.first),
        by_episode(discounted.rows, discounted.first),
        by_episode(episode.rows, episode.first),
        _rows(discounted.corrections, evidence.rows),
    )


class _Moments(NamedTuple):
    gram: jax.Array
    cross: jax.Array
    values: jax.Array


@jax.jit
def _fit(basis: Basis, chunks: _Chunks, weights: jax.Array, initial: jax.Array) -> Model:
    def add(total: _Moments, rows: tuple[_Chunks, jax.Array]) -> tuple[_Moments, None]:
        chunk, weight = rows
        phi = _phi(basis, chunk.here, chunk.critic_here)
        following = chunk.alive[:, None] * _phi(basis, chunk.then, chunk.critic_then)
        weighted = weight[:, None] * phi
        part = _Moments(weighted.T @ phi, following.T @ weighted, weighted.T @ chunk.values)
        return jax.tree.map(jnp.add, total, part), None

    d = len(initial)
    nothing = _Moments(jnp.zeros((d, d)), jnp.zeros((d, d)), jnp.zeros((d, 2)))
    total = jax.lax.scan(add, nothing, (chunks, weights))[0]
    rows = chunks.real.sum()
    means = _Moments(*(part / rows for part in total))
    roughness = jnp.append(basis.roughness, jnp.ones(d - len(basis.roughness)))
    return fit_model(means.gram, means.cross, means.values, initial, RIDGE * roughness / rows)


class _Influence(NamedTuple):
    rows: jax.Array
    """[chunks, CHUNK, 2]"""
    first: jax.Array
    """[d, 2] v_0"""
    corrections: jax.Array
    """[chunks, CHUNK]"""


@partial(jax.jit, static_argnames="discount")
def _discounted_influence(
    basis: Basis, chunks: _Chunks, weights: jax.Array, model: Model, discount: float
) -> _Influence:
    """ψ = w (x + γ v(s',a') - v(s,a)) / (1-γ) with v = c + γ P v."""
    theta = correction_coefficients(model, discounted_features(model, discount))
    v = linear.solve(jnp.eye(len(theta)) - discount * model.transition, model.values)
    left = jnp.concatenate([theta[:, None], v], -1)

    def of_chunk(rows: tuple[_Chunks, jax.Array]) -> tuple[jax.Array, jax.Array]:
        chunk, weight = rows
        here = _projected(basis, chunk.here, chunk.critic_here, left)
        then = chunk.alive[:, None] * _projected(basis, chunk.then, chunk.critic_then, v)
        w = weight * here[:, 0]
        return w[:, None] * (chunk.values + discount * then - here[:, 1:]) / (1 - discount), w

    psi, w = jax.lax.map(of_chunk, (chunks, weights))
    return _Influence(psi, v, w)


@partial(jax.jit, static_argnames="horizon")
def _episode_influence(basis: Basis, chunks: _Chunks, weights: jax.Array, model: Model, horizon: int) -> _Influence:
    """ψ of the undiscounted episode, with Σ_t θ_t v_{t+1}ᵀ and Σ_t θ_t v_tᵀ by their leading directions."""

    def forward(u: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return u @ model.transition, u

    def backward(v: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return model.values + model.transition @ v, v

    thetas = linear.solve(model.gram, jax.lax.scan(forward, model.initial, length=horizon)[1].T).T
    first, after = jax.lax.scan(backward, jnp.zeros_like(model.values), length=horizon, reverse=True)
    value = jnp.concatenate([first[None], after[:-1]])
    times, sizes, directions = jnp.linalg.svd(thetas, full_matrices=False)
    rank = min(RANK, *thetas.shape)
    times, directions = times[:, :rank] * sizes[:rank], directions[:rank].T

    def folded(values: jax.Array) -> jax.Array:
        return jnp.einsum("tr,tdq->drq", times, values).reshape(len(model.gram), -1)

    left = jnp.concatenate([thetas.sum(0)[:, None], directions, folded(value)], -1)
    right = folded(after)

    def of_chunk(rows: tuple[_Chunks, jax.Array]) -> tuple[jax.Array, jax.Array]:
        chunk, weight = rows
        here = _projected(basis, chunk.here, chunk.critic_here, left)
        then = chunk.alive[:, None] * _projected(basis, chunk.then, chunk.critic_then, right)
        w, along, value_here = here[:, 0], here[:, 1 : 1 + rank], here[:, 1 + rank :]
        temporal = (then - value_here).reshape(-1, rank, 2)
        psi = chunk.values * w[:, None] + (along[..., None] * temporal).sum(-2)
        return weight[:, None] * psi, weight * w / horizon

    psi, w = jax.lax.map(of_chunk, (chunks, weights))
    return _Influence(psi, first, w)


def _phi(basis: Basis, inputs: jax.Array, critic: jax.Array) -> jax.Array:
    return jnp.concatenate([features(basis, inputs), critic], -1)


def _projected(basis: Basis, inputs: jax.Array, critic: jax.Array, coefficients: jax.Array) -> jax.Array:
    """_phi @ coefficients, without the features themselves."""
    d = len(basis.roughness)
    return project(basis, inputs, coefficients[:d]) + critic @ coefficients[d:]


@jax.jit
def _corrections(basis: Basis, chunks: _Chunks, theta: jax.Array) -> jax.Array:
    def of_chunk(chunk: _Chunks) -> jax.Array:
        return _projected(basis, chunk.here, chunk.critic_here, theta[:, None])[:, 0]

    return jax.lax.map(of_chunk, chunks)


def _of_actions(evidence: Evidence, question: Question, seed: int) -> tuple[_Chunks, jax.Array, jax.Array]:
    """φ of states and actions, and the policy's first pairs."""
    method = fqe.method_for(evidence)
    training = Training(max(1, min(CRITIC_STEPS, evidence.rows // ROWS_PER_STEP)), widths=CRITIC_WIDTHS)
    rows, starts = rows_of(evidence, question, corrected=False)
    params = fit(method, training, rows, starts, evidence.discount, jax.random.key(seed))
    here, then, start = (
        method.normalised(params, pairs, training.widths) for pairs in (rows.pairs, rows.next_pairs, starts.pairs)
    )
    return _chunks(rows.pairs, rows.next_pairs, here, then, rows.alive, rows.values), starts.pairs, start


def _of_states(evidence: Evidence, question: Question) -> tuple[_Chunks, jax.Array, jax.Array]:
    """φ of states: w(a|s) weighs what comes of the logged action, E_D[w_{t+1} φ(s)] = E_D[w_t w(a|s) φ(s')]."""
    w = question.policy_correction
    if w is None:
        raise UserError("extraction of π_w begins with w(a|s): give a policy correction, or fit one (ope.behaviour)")
    values = w[:, None] * jnp.asarray(evidence.values.T)
    none = jnp.zeros((evidence.rows, 0))
    chunks = _chunks(evidence.observations, evidence.next_observations, none, none, evidence.alive * w, values)
    return chunks, evidence.initial_observations, none[: len(evidence.initial_observations)]


def _chunks(*columns: jax.Array) -> _Chunks:
    """From all fields but the last."""
    rows = len(columns[0])
    count = -(-rows // CHUNK)
    length = -(-rows // count)
    return _Chunks(*(_spread(column, count, length) for column in (*columns, jnp.ones(rows))))


def _spread(column: jax.Array, count: int, length: int) -> jax.Array:
    padded = jnp.pad(column, [(0, count * length - len(column)), *[(0, 0)] * (column.ndim - 1)])
    return jnp.swapaxes(padded.reshape(length, count, *column.shape[1:]), 0, 1)


def _rows(chunked: jax.Array, rows: int) -> np.ndarray:
    """[chunks, CHUNK, ...] back into the order of the rows."""
    array = np.swapaxes(np.asarray(chunked), 0, 1)
    return array.reshape(-1, *array.shape[2:])[:rows]
