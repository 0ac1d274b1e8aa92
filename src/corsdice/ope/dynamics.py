"""Fits models of one step (`corsdice.dynamics`) to logs, each until unseen episodes are told no better."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from scipy.special import logit

from corsdice.algorithms.logs import CONSTANT
from corsdice.dynamics import STRANGE, Linear, Model, Scales, predict, predict_by_network, predict_outcome, unusual
from corsdice.errors import UserError
from corsdice.extraction import fit_basis
from corsdice.ope.evidence import Evidence

MODELS = 4
ROUND = 1_000
"""Steps of training between two looks at the rows held out."""
PATIENCE = 1 / 3
"""Share of all rounds that may have gone by without a better look, but at least FEWEST_ROUNDS."""
FEWEST_ROUNDS = 5
BATCH = 256
LOOKED_AT = 20_000
"""Of the rows held out."""
AVERAGED = 0.1
"""What is kept is an average over about the last tenth of all steps: a rate that need not fall, since nobody knows
beforehand when the end will be."""
RIDGE = 1e-5
"""Of the linear map, for columns that tell the same."""
MARGIN = 0.5
"""How far beyond what was logged an imagined state may go, in parts of the logged range."""
WAVES = 200

Params = dict[str, Any]


class Rows(NamedTuple):
    """Transitions, in standard units."""

    pairs: jax.Array
    """[n, O + A]"""
    previous: jax.Array
    """[n, O + A] the change and the action of the step before; zeros where there was none"""
    change: jax.Array
    """[n, O] from s to s', in the scales"""
    alive: jax.Array
    values: jax.Array
    """[n, 2] rewards and costs, raw"""


class Network(Protocol):
    """One network of `corsdice.dynamics`, as it is fitted."""

    @property
    def rate(self) -> float:
        """Adam's."""

    @property
    def most_rounds(self) -> int: ...

    def init(self, key: jax.Array, rows: Rows) -> Params: ...

    def loss(self, params: Params, rows: Rows) -> jax.Array:
        """What is descended on."""

    def held_out_loss(self, params: Params, rows: Rows) -> jax.Array:
        """What tells when to stop."""


@dataclass(frozen=True)
class StepFit:
    """By likelihood of the changes and of the ends.

    Weighed by the deviation that is told (β-NLL with β = 1/2; Seitzer et al., 2022): likelihood alone learns a contact
    from no row, since it is content to call uncertain what it has not yet learned.
    """

    scales: Scales
    rate = 3e-3
    most_rounds = 100

    def init(self, key: jax.Array, rows: Rows) -> Params:
        return {"step": self.scales.network.init(key, jnp.concatenate([rows.pairs, rows.previous], -1)[:1])}

    def loss(self, params: Params, rows: Rows) -> jax.Array:
        return self._unlikeliness(params, rows, 1.0)

    def held_out_loss(self, params: Params, rows: Rows) -> jax.Array:
        return self._unlikeliness(params, rows, 0.0)

    def _unlikeliness(self, params: Params, rows: Rows, weighed: float) -> jax.Array:
        told = predict_by_network(self.scales, params, rows.pairs, rows.previous)
        residual = (rows.change - told.change) / jnp.exp(told.log_deviation)
        weight = jax.lax.stop_gradient(jnp.exp(weighed * told.log_deviation))
        unlikely = (weight * (told.log_deviation + residual**2 / 2)).mean(-1)
        ends = optax.sigmoid_binary_cross_entropy(told.end, 1 - rows.alive)
        return (rows.alive * unlikely + ends).mean()  # what a log holds after a termination is no state


@dataclass(frozen=True)
class OutcomeFit:
    """By the errors of reward and cost."""

    scales: Scales
    rate = 5e-3
    most_rounds = 40

    def init(self, key: jax.Array, rows: Rows) -> Params:
        return {"outcome": self.scales.outcome_network.init(key, jnp.concatenate([rows.pairs, rows.change], -1)[:1])}

    def loss(self, params: Params, rows: Rows) -> jax.Array:
        scales = self.scales
        outcome = predict_outcome(scales, params, rows.pairs, rows.change)
        rewards, costs = rows.values.T
        error = (rewards - scales.reward_shift) / scales.reward - outcome.reward
        return (error**2 + optax.sigmoid_binary_cross_entropy(outcome.cost, costs / scales.largest_cost)).mean()

    held_out_loss = loss


class _Progress(NamedTuple):
    """How far a network is fitted; parameters are one vector, which is sooner compiled than many arrays."""

    params: jax.Array
    average: jax.Array
    optimiser: Any
    rounds: jax.Array
    best: jax.Array
    """The average that told the rows held out best."""
    least: jax.Array
    """Its loss there."""
    best_round: jax.Array


@partial(jax.jit, static_argnames="network")
def fit(network: Network, rows: Rows, held_out: Rows, key: jax.Array) -> tuple[Params, jax.Array]:
    """The parameters that told the rows held out best, when it has long not become better, and their loss there."""
    adam = optax.scale_by_adam()
    first, shaped = ravel_pytree(network.init(key, rows))

    def step(now: _Progress, i: jax.Array) -> tuple[_Progress, None]:
        index = jax.random.randint(jax.random.fold_in(key, i), (BATCH,), 0, len(rows.alive))
        batch = jax.tree.map(lambda column: column[index], rows)
        gradient = jax.grad(lambda params: network.loss(shaped(params), batch))(now.params)
        direction, optimiser = adam.update(gradient, now.optimiser)
        params = now.params - network.rate * direction
        average = now.average + (params - now.average) / (1 + AVERAGED * i)
        return now._replace(params=params, average=average, optimiser=optimiser), None

    def one_round(now: _Progress) -> _Progress:
        now = jax.lax.scan(step, now, now.rounds * ROUND + jnp.arange(ROUND))[0]
        now = now._replace(rounds=now.rounds + 1)
        loss = network.held_out_loss(shaped(now.average), held_out)
        better = now._replace(best=now.average, least=loss, best_round=now.rounds)
        return jax.tree.map(partial(jnp.where, loss < now.least), better, now)

    def is_going(now: _Progress) -> jax.Array:
        patience = jnp.maximum(FEWEST_ROUNDS, PATIENCE * now.rounds)
        return (now.rounds < network.most_rounds) & (now.rounds - now.best_round < patience)

    begun = _Progress(first, first, adam.init(first), jnp.int32(0), first, jnp.float32(jnp.inf), jnp.int32(0))
    ended = jax.lax.while_loop(is_going, one_round, begun)
    return shaped(ended.best), ended.least


def fit_ensemble(evidence: Evidence, models: int = MODELS) -> list[Model]:
    """Each without another part of the episodes: what they disagree on, the logs do not tell.

    The part that a model has not seen tells when to stop, and how far off it is. No policy is known to them: the
    logs may be those that policies were trained on. Models of the same logs share what is compiled.
    """
    scales = scales_of(evidence)
    rows, part = _rows(evidence, scales), _parts(evidence)
    states = fit_basis(np.asarray(evidence.observations), min(WAVES, max(1, evidence.rows // 30)), 2_000)
    usual = jnp.float32(np.quantile(jax.jit(unusual)(states, evidence.observations), 1 - STRANGE))
    low, high = evidence.observations.min(0), evidence.observations.max(0)
    margin = MARGIN * (high - low)

    def seen_and_not(model: int) -> tuple[Rows, Rows]:
        unseen = np.random.default_rng(model).permutation(np.flatnonzero(part == model))
        looked_at = np.resize(unseen, min(LOOKED_AT, -(-evidence.rows // MODELS)))
        kept = np.resize(np.flatnonzero(part != model), evidence.rows)
        return _at(rows, kept), _at(rows, looked_at)

    def fitted(job: tuple[int, Network]) -> Params:
        model, network = job
        params, loss = fit(network, *seen_and_not(model), jax.random.key(model))
        if not np.isfinite(loss):
            raise UserError(
                "no model of one step can be learned from these logs: its loss is not finite; "
                "look for columns of enormous values with corsdice data check"
            )
        return params

    networks: tuple[Network, ...] = (StepFit(scales), OutcomeFit(scales))
    with ThreadPoolExecutor(2) as beside:  # networks this small keep one core busy each
        found = list(beside.map(fitted, product(range(models), networks)))
    params = [
        step | outcome | {"linear": linear_map(scales, step, *seen_and_not(model))}
        for model, (step, outcome) in enumerate(zip(found[::2], found[1::2], strict=True))
    ]
    noise = [_noise(scales, each, seen_and_not(model)[1]) for model, each in enumerate(params)]
    return [
        Model(scales, each, drawn, low - margin, high + margin, states, usual)
        for each, drawn in zip(params, noise, strict=True)
    ]


@jax.jit
def linear_map(scales: Scales, params: Params, rows: Rows, unseen: Rows) -> Linear:
    """Least squares over rows after which something follows; where it is better, unseen rows tell."""

    def inputs(rows: Rows) -> jax.Array:
        return jnp.concatenate([rows.pairs, rows.previous], -1)

    share = rows.alive[:, None] / rows.alive.sum()
    middle, shift = (share * inputs(rows)).sum(0), (share * rows.change).sum(0)
    centred = inputs(rows) - middle
    gram = (share * centred).T @ centred + RIDGE * jnp.eye(len(middle))
    slope = jnp.linalg.solve(gram, (share * centred).T @ (rows.change - shift))

    def error(told: jax.Array) -> jax.Array:
        return (unseen.alive[:, None] * (unseen.change - told) ** 2).sum(0)

    shift = shift - middle @ slope
    by_network = predict_by_network(scales, params, unseen.pairs, unseen.previous).change
    return Linear(slope, shift, error(inputs(unseen) @ slope + shift) < error(by_network))


def scales_of(evidence: Evidence) -> Scales:
    alive = np.asarray(evidence.alive)
    changes = np.asarray(evidence.next_observations - evidence.observations)[alive > 0]
    rewards, costs = evidence.values
    largest_cost = max(costs.max(), 1e-6)
    cost_logit, end_logit = logit(np.clip([costs.mean() / largest_cost, 1 - alive.mean()], 1e-9, 1 - 1e-9)).tolist()
    change = np.sqrt((changes**2).mean(0))  # a clock changes by the same at every step, so a deviation would be 0
    return Scales(
        tuple(np.where(change > CONSTANT, change, 1.0).tolist()),
        float(rewards.mean()),
        float(max(rewards.std(), 1e-6)),
        float(largest_cost),
        cost_logit,
        end_logit,
    )


def _rows(evidence: Evidence, scales: Scales) -> Rows:
    change = (evidence.next_observations - evidence.observations) / jnp.array(scales.change)
    steps = jnp.concatenate([change, evidence.actions], -1)
    previous = jnp.roll(steps, 1, axis=0).at[evidence.episodes.starts].set(0.0)
    return Rows(evidence.pairs, previous, change, evidence.alive, jnp.asarray(evidence.values.T))


def _at(rows: Rows, index: np.ndarray) -> Rows:
    return jax.tree.map(lambda column: column[index], rows)


def _parts(evidence: Evidence) -> np.ndarray:
    """[n] which part each row belongs to: by whole episodes, or where these are too few by rows."""
    generator = np.random.default_rng(0)
    episodes = evidence.episodes
    if len(episodes.starts) < MODELS:
        return generator.permutation(evidence.rows) % MODELS
    return np.repeat(generator.permutation(len(episodes.starts)) % MODELS, episodes.lengths)


def _noise(scales: Scales, params: Params, unseen: Rows) -> jax.Array:
    """[n, O] by how much rows that were not learned from miss what was told of them, in the deviations that were told.

    Rows after which something follows, repeated up to the number of all.
    """
    found = np.asarray(_residual(scales, params, unseen))[np.asarray(unseen.alive) > 0]
    return jnp.asarray(np.resize(found, (len(unseen.alive), found.shape[1])))


@jax.jit
def _residual(scales: Scales, params: Params, rows: Rows) -> jax.Array:
    told = predict(scales, params, rows.pairs, rows.previous)
    return (rows.change - told.change) / jnp.exp(told.log_deviation)
