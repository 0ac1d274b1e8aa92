"""Fits models of one step (`corsdice.dynamics`) to logs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.special import logit

from corsdice.dynamics import STRANGE, Model, Scales, predict, predict_outcome, unusual
from corsdice.extraction import fit_basis
from corsdice.ope.evidence import Evidence, Question
from corsdice.ope.networks import Method, Params, Rows, Starts, Training, fit, rows_of

STEPS = 10_000
ROWS_PER_STEP = 2
"""At most so many steps of training, on few rows fewer."""
MODELS = 4
MARGIN = 0.5
"""How far beyond what was logged an imagined state may go, in parts of the logged range."""
WAVES = 200


@dataclass(frozen=True)
class _Network:
    """One network of `corsdice.dynamics`."""

    scales: Scales
    momentum: float = 0.9
    following: float = 1.0


class StepFit(_Network):
    """By likelihood of the changes and of the ends.

    Weighed by the deviation that is told (β-NLL with β = 1/2; Seitzer et al., 2022): likelihood alone learns a contact
    from no row, since it is content to call uncertain what it has not yet learned.
    """

    @property
    def rates(self) -> dict[str, float]:
        return {"step": 3e-3}

    def init(self, key: jax.Array, widths: tuple[int, ...], rows: Rows) -> Params:
        return {"step": self.scales.network.init(key, rows.pairs[:1])}

    def loss(
        self, params: Params, held: Params, rows: Rows, starts: Starts, widths: tuple[int, ...], discount: float
    ) -> jax.Array:
        told = predict(self.scales, params, rows.pairs)
        residual = (_change(self.scales, rows) - told.change) / jnp.exp(told.log_deviation)
        weight = jax.lax.stop_gradient(jnp.exp(told.log_deviation))
        unlikely = (weight * (told.log_deviation + residual**2 / 2)).mean(-1)
        ends = optax.sigmoid_binary_cross_entropy(told.end, 1 - rows.alive)
        return (rows.alive * unlikely + ends).mean()  # what a log holds after a termination is no state


class OutcomeFit(_Network):
    """By the errors of reward and cost."""

    @property
    def rates(self) -> dict[str, float]:
        return {"outcome": 5e-3}

    def init(self, key: jax.Array, widths: tuple[int, ...], rows: Rows) -> Params:
        transition = jnp.concatenate([rows.pairs[:1], rows.observations[:1]], -1)
        return {"outcome": self.scales.outcome_network.init(key, transition)}

    def loss(
        self, params: Params, held: Params, rows: Rows, starts: Starts, widths: tuple[int, ...], discount: float
    ) -> jax.Array:
        scales = self.scales
        outcome = predict_outcome(scales, params, rows.pairs, _change(scales, rows))
        rewards, costs = rows.values.T
        error = (rewards - scales.reward_shift) / scales.reward - outcome.reward
        return (error**2 + optax.sigmoid_binary_cross_entropy(outcome.cost, costs / scales.largest_cost)).mean()


def _change(scales: Scales, rows: Rows) -> jax.Array:
    return (rows.next_observations - rows.observations) / jnp.array(scales.change)


def scales_of(evidence: Evidence) -> Scales:
    alive = np.asarray(evidence.alive)
    changes = np.asarray(evidence.next_observations - evidence.observations)[alive > 0]
    rewards, costs = evidence.values
    largest_cost = max(costs.max(), 1e-6)
    cost_logit, end_logit = logit(np.clip([costs.mean() / largest_cost, 1 - alive.mean()], 1e-9, 1 - 1e-9)).tolist()
    return Scales(
        tuple(np.maximum(changes.std(0), 1e-6).tolist()),
        float(rewards.mean()),
        float(max(rewards.std(), 1e-6)),
        float(largest_cost),
        cost_logit,
        end_logit,
    )


def fit_ensemble(evidence: Evidence) -> list[Model]:
    """Each without another quarter of the episodes: what they disagree on, the logs do not tell."""
    count = len(evidence.episodes.starts)
    if count < MODELS:
        return [fit_dynamics(evidence, model) for model in range(MODELS)]
    group = np.random.default_rng(0).permutation(count) % MODELS
    group_of_row = np.repeat(group, evidence.episodes.lengths)
    return [fit_dynamics(evidence, model, np.flatnonzero(group_of_row != model)) for model in range(MODELS)]


def fit_dynamics(evidence: Evidence, seed: int = 0, kept: np.ndarray | None = None) -> Model:
    """By the rows of the logs, or those with these numbers; they may be those that policies were trained on.

    It does not know any policy. What is kept is repeated up to the number of all rows, and scales are of all of them:
    so models of the same logs share what is compiled.
    """
    scales = scales_of(evidence)
    nobody = Question(evidence.actions, evidence.actions[: len(evidence.initial_observations)])
    rows, starts = rows_of(evidence, nobody, corrected=False)
    if kept is not None:
        repeated = np.resize(kept, evidence.rows)
        rows = jax.tree.map(lambda column: column[repeated], rows)
    training = Training(_steps(STEPS, evidence))

    def fitted(network: Method) -> Params:
        return fit(network, training, rows, starts, evidence.discount, jax.random.key(seed))

    with ThreadPoolExecutor(2) as beside:  # networks this small keep one core busy each
        step, outcome = beside.map(fitted, (StepFit(scales), OutcomeFit(scales)))
    params = step | outcome
    low, high = evidence.observations.min(0), evidence.observations.max(0)
    states = fit_basis(np.asarray(evidence.observations), min(WAVES, max(1, evidence.rows // 30)), 2_000)
    return Model(
        scales,
        params,
        _noise(scales, params, rows),
        low - MARGIN * (high - low),
        high + MARGIN * (high - low),
        states,
        jnp.float32(np.quantile(jax.jit(unusual)(states, evidence.observations), 1 - STRANGE)),
    )


def _noise(scales: Scales, params: Params, rows: Rows) -> jax.Array:
    """[n, O] of the rows after which something follows, repeated up to the number of all."""
    found = np.asarray(_residual(scales, params, rows))[np.asarray(rows.alive) > 0]
    return jnp.asarray(np.resize(found, (len(rows.alive), found.shape[1])))


@jax.jit
def _residual(scales: Scales, params: Params, rows: Rows) -> jax.Array:
    told = predict(scales, params, rows.pairs)
    return (_change(scales, rows) - told.change) / jnp.exp(told.log_deviation)


def _steps(most: int, evidence: Evidence) -> int:
    return max(1, min(most, evidence.rows // ROWS_PER_STEP))
