"""Fits a model of one step (`corsdice.dynamics`), and what it imagines of a policy as if it had been logged.

Estimators on the logs must tell where a policy goes from rows that lie elsewhere, by functions that hold the policy
itself, which may be steep. What one step does is often far simpler, and then a model of it fills the gap. Where it is
not, as with legs that touch the ground, the model's own errors carry it away from all that was ever logged. That is
seen policy by policy: by the share of imagined states that are strange.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.special import logit

from corsdice.data.dataset import Episodes
from corsdice.dynamics import STRANGE, Act, Model, Scales, are_strange, predict, predict_outcome, take_step, unusual
from corsdice.extraction import fit_basis
from corsdice.ope.evidence import Evidence, Question
from corsdice.ope.networks import Method, Params, Rows, Starts, Training, fit, rows_of

STEPS = 10_000
ROWS_PER_STEP = 2
"""At most so many steps of training, on few rows fewer."""
ROWS = 50_000
"""To imagine at most: whole episodes from logged first states, and no more than were logged."""
LONGEST = 1_000
"""Steps of an imagined episode."""
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


class Imagination:
    """A model, and logs whose first states and length its episodes have."""

    def __init__(self, model: Model, evidence: Evidence, seed: int = 0) -> None:
        self.model = model
        self.evidence = evidence
        self.seed = seed

    def episodes(self, act: Act) -> tuple[Evidence, Question]:
        """Of a policy, which may be any function, as if they had been logged."""
        evidence = self.evidence
        steps = min(evidence.horizon, LONGEST)
        count = max(1, min(ROWS, evidence.rows) // steps)
        starts = np.random.default_rng(self.seed).integers(0, len(evidence.initial_observations), count)
        observations = evidence.initial_observations[starts]
        key = jax.random.key(self.seed)
        actions = act(observations, jax.random.fold_in(key, steps))
        going = np.ones(count, bool)
        seen: list[tuple[np.ndarray, ...]] = []
        for t in range(steps):
            step = take_step(self.model, act, observations, actions, jax.random.fold_in(key, t))
            seen.append((*map(np.asarray, step), going))
            observations, actions, going = step.next_observations, step.next_actions, going & ~np.asarray(step.ended)
        columns = [np.swapaxes(np.stack(column), 0, 1) for column in zip(*seen, strict=True)]
        lived = columns.pop()
        stops = lived.sum(1).cumsum()
        here, taken, following, next_actions, values, ended = (column[lived] for column in columns)
        imagined = evidence._replace(
            observations=jnp.asarray(here),
            actions=jnp.asarray(taken),
            next_observations=jnp.asarray(following),
            alive=jnp.asarray(~ended, jnp.float32),
            values=values.T,
            initial_observations=evidence.initial_observations[starts],
            episodes=Episodes(np.append(0, stops[:-1]), stops),
        )
        return imagined, Question(jnp.asarray(next_actions), jnp.asarray(columns[1][:, 0]))

    def strange(self, imagined: Evidence) -> float:
        """The share of imagined states that are stranger than all but one in a hundred of the logged ones."""
        return float(are_strange(self.model, imagined.observations).mean())


def joined(logged: tuple[Evidence, Question], imagined: tuple[Evidence, Question]) -> tuple[Evidence, Question]:
    """Both, one after the other."""
    (first, asked), (second, answered) = logged, imagined
    evidence = first._replace(
        observations=jnp.concatenate([first.observations, second.observations]),
        actions=jnp.concatenate([first.actions, second.actions]),
        next_observations=jnp.concatenate([first.next_observations, second.next_observations]),
        alive=jnp.concatenate([first.alive, second.alive]),
        values=np.concatenate([first.values, second.values], 1),
        initial_observations=jnp.concatenate([first.initial_observations, second.initial_observations]),
        episodes=Episodes(
            np.append(first.episodes.starts, second.episodes.starts + first.rows),
            np.append(first.episodes.stops, second.episodes.stops + first.rows),
        ),
    )
    question = Question(
        jnp.concatenate([asked.next_actions, answered.next_actions]),
        jnp.concatenate([asked.initial_actions, answered.initial_actions]),
    )
    return evidence, question
