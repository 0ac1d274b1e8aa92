"""A learned model of one step, and what it imagines of a policy: episodes where the logs hold few or none.

Estimators on the logs must tell where a policy goes from rows that lie elsewhere, by functions that hold the policy
itself, which may be steep. What one step does is often far simpler, and then a model of it fills the gap. Where it is
not, as with legs that touch the ground, the model's own errors carry it away from all that was ever logged; `strange`
tells so, and what such a model imagines is not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.special import logit

from corsdice.data.dataset import Episodes
from corsdice.extraction import features, fit_basis
from corsdice.networks import MLP
from corsdice.ope.evidence import Act, Evidence, Question
from corsdice.ope.networks import Params, Rows, Starts, Training, fit, rows_of

STEPS, WIDTHS = 20_000, (128, 128)
ROWS_PER_STEP = 5
"""At most so many steps of training, on few rows fewer."""
ROWS = 50_000
"""To imagine at most: whole episodes from logged first states, and no more than were logged."""
LONGEST = 1_000
"""Steps of an imagined episode."""
LOG_DEVIATIONS = (-6.0, 2.0)
MARGIN = 0.5
"""How far beyond what was logged an imagined state may go, in parts of the logged range."""
WAVES = 200
STRANGE = 0.01
"""The share of logged states that count as strange themselves."""


class Prediction(NamedTuple):
    """Of rows; in units of `Dynamics`."""

    change: jax.Array
    """[n, O] mean of the change of the observation"""
    log_deviation: jax.Array
    """[n, O]"""
    reward: jax.Array
    """[n]"""
    cost: jax.Array
    """[n] logit of the cost as a part of the largest logged: a cost that jumps is seen sharply, and none is below 0"""
    end: jax.Array
    """[n] logit of a termination"""


@dataclass(frozen=True)
class Dynamics:
    """p(s', end | s, a) and the means of reward and cost, by one network."""

    change_scale: tuple[float, ...]
    """[O] of the changes of an observation in one step"""
    reward_shift: float
    reward_scale: float
    largest_cost: float
    cost_logit: float
    """Of the logs' mean, from which the network departs, as `end_logit`: what never happened is not imagined."""
    end_logit: float
    momentum: float = 0.9
    following: float = 1.0

    @property
    def rates(self) -> dict[str, float]:
        return {"model": 1e-3}

    def init(self, key: jax.Array, widths: tuple[int, ...], rows: Rows) -> Params:
        return {"model": MLP(widths, 2 * len(self.change_scale) + 3).init(key, rows.pairs[:1])}

    def predict(self, params: Params, pairs: jax.Array, widths: tuple[int, ...]) -> Prediction:
        size = len(self.change_scale)
        output = MLP(widths, 2 * size + 3).apply(params["model"], pairs)
        deviations = jnp.clip(output[:, size : 2 * size], *LOG_DEVIATIONS)
        reward, cost, end = output[:, 2 * size :].T
        return Prediction(output[:, :size], deviations, reward, cost + self.cost_logit, end + self.end_logit)

    def standard_change(self, rows: Rows) -> jax.Array:
        return (rows.next_observations - rows.observations) / jnp.array(self.change_scale)

    def loss(
        self, params: Params, held: Params, rows: Rows, starts: Starts, widths: tuple[int, ...], discount: float
    ) -> jax.Array:
        told = self.predict(params, rows.pairs, widths)
        residual = (self.standard_change(rows) - told.change) / jnp.exp(told.log_deviation)
        unlikely = (told.log_deviation + residual**2 / 2).mean(-1)
        rewards, costs = rows.values.T
        error = (rewards - self.reward_shift) / self.reward_scale - told.reward
        return (
            (rows.alive * unlikely).mean()  # what a log holds after a termination is no state
            + (error**2).mean()
            + optax.sigmoid_binary_cross_entropy(told.cost, costs / self.largest_cost).mean()
            + optax.sigmoid_binary_cross_entropy(told.end, 1 - rows.alive).mean()
        )


def method_for(evidence: Evidence) -> Dynamics:
    alive = np.asarray(evidence.alive)
    changes = np.asarray(evidence.next_observations - evidence.observations)[alive > 0]
    rewards, costs = evidence.values
    largest_cost = max(costs.max(), 1e-6)
    cost_logit, end_logit = logit(np.clip([costs.mean() / largest_cost, 1 - alive.mean()], 1e-9, 1 - 1e-9)).tolist()
    return Dynamics(
        tuple(np.maximum(changes.std(0), 1e-6).tolist()),
        float(rewards.mean()),
        float(max(rewards.std(), 1e-6)),
        float(largest_cost),
        cost_logit,
        end_logit,
    )


class Imagination:
    """What all policies share: the model, fitted to the evidence, and what logged states are like."""

    def __init__(self, evidence: Evidence, seed: int = 0) -> None:
        self.evidence = evidence
        self.seed = seed
        self._method = method_for(evidence)
        nobody = Question(evidence.actions, evidence.actions[: len(evidence.initial_observations)])
        rows, starts = rows_of(evidence, nobody, corrected=False)
        training = Training(max(1, min(STEPS, evidence.rows // ROWS_PER_STEP)), widths=WIDTHS)
        self._params = fit(self._method, training, rows, starts, evidence.discount, jax.random.key(seed))
        told = jax.jit(partial(self._method.predict, widths=WIDTHS))(self._params, rows.pairs)
        noise = (self._method.standard_change(rows) - told.change) / jnp.exp(told.log_deviation)
        self._noise = noise[np.flatnonzero(np.asarray(evidence.alive))]
        low, high = evidence.observations.min(0), evidence.observations.max(0)
        self._bounds = low - MARGIN * (high - low), high + MARGIN * (high - low)
        basis = fit_basis(np.asarray(evidence.observations), min(WAVES, max(1, evidence.rows // 30)), seed + 2_000)
        self._strangeness = jax.jit(lambda observations: (features(basis, observations) ** 2).mean(-1))
        logged = np.asarray(self._strangeness(evidence.observations))
        self._usual = float(np.quantile(logged, 1 - STRANGE))

    def episodes(self, act: Act) -> tuple[Evidence, Question]:
        """Of a policy: as if they had been logged."""
        evidence = self.evidence
        steps = min(evidence.horizon, LONGEST)
        count = max(1, min(ROWS, evidence.rows) // steps)
        starts = np.random.default_rng(self.seed).integers(0, len(evidence.initial_observations), count)
        observations = evidence.initial_observations[starts]
        key = jax.random.key(self.seed)
        actions = act(observations, jax.random.fold_in(key, steps))
        going = np.ones(count, bool)
        step = partial(_step, self._method, self._params, self._noise, self._bounds)
        seen: list[tuple[np.ndarray, ...]] = []
        for t in range(steps):
            act_key, step_key = jax.random.split(jax.random.fold_in(key, t))
            following, values, ended = step(observations, actions, step_key)
            next_actions = act(following, act_key)
            row = (observations, actions, following, 1.0 - ended, values, next_actions)
            seen.append((*map(np.asarray, row), going))
            observations, actions, going = following, next_actions, going & ~np.asarray(ended)
        columns = [np.swapaxes(np.stack(column), 0, 1) for column in zip(*seen, strict=True)]
        lived = columns.pop()
        stops = lived.sum(1).cumsum()
        here, taken, following, alive, values, next_actions = (column[lived] for column in columns)
        imagined = evidence._replace(
            observations=jnp.asarray(here),
            actions=jnp.asarray(taken),
            next_observations=jnp.asarray(following),
            alive=jnp.asarray(alive, jnp.float32),
            values=values.T,
            initial_observations=evidence.initial_observations[starts],
            episodes=Episodes(np.append(0, stops[:-1]), stops),
        )
        return imagined, Question(jnp.asarray(next_actions), jnp.asarray(columns[1][:, 0]))

    def strange(self, imagined: Evidence) -> float:
        """The share of imagined states that are stranger than all but one in a hundred of the logged ones."""
        return float((np.asarray(self._strangeness(imagined.observations)) > self._usual).mean())


@partial(jax.jit, static_argnames="method")
def _step(
    method: Dynamics,
    params: Params,
    noise: jax.Array,
    bounds: tuple[jax.Array, jax.Array],
    observations: jax.Array,
    actions: jax.Array,
    key: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Next observations, (rewards, costs) and terminations.

    The noise is a logged row's, all columns together: a push that moves a speed moves the place with it, and noise
    drawn for each column alone would cut how far it carries by half.
    """
    noise_key, end_key = jax.random.split(key)
    told = method.predict(params, jnp.concatenate([observations, actions], -1), WIDTHS)
    drawn = noise[jax.random.randint(noise_key, (len(observations),), 0, len(noise))]
    change = told.change + jnp.exp(told.log_deviation) * drawn
    following = jnp.clip(observations + jnp.array(method.change_scale) * change, *bounds)
    rewards = told.reward * method.reward_scale + method.reward_shift
    costs = jax.nn.sigmoid(told.cost) * method.largest_cost
    ended = jax.random.uniform(end_key, told.end.shape) < jax.nn.sigmoid(told.end)
    return following, jnp.stack([rewards, costs], -1), ended


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
