"""What an episode of the actor costs, while it learns: extraction in closed form (`corsdice.extraction`), on logs that
nothing is trained on and on what a model imagines of the actor, where one can be believed (`ope.dynamics`)."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap

from corsdice.algorithms.contract import Config, Params
from corsdice.algorithms.logs import Logs, Probe, draw_initial
from corsdice.dynamics import STRANGE, Act, Model, are_strange, imagine
from corsdice.extraction import RIDGE, correction_coefficients, expected_features, features, fit_model, relevance
from corsdice.extraction import Model as LinearModel
from corsdice.networks import draw

IMAGINED_ROWS, LONGEST = 10_000, 1_000
"""Of an estimate while learning, and the steps of its episodes."""
SKETCH = 4
"""Every so many rows tell where the actor goes."""


class EpisodeCost(NamedTuple):
    """Undiscounted sums over an episode."""

    value: jax.Array
    doubt: jax.Array
    """To be added if what is imagined and strange, beyond the share that logged states are, costs the most it can."""


class _Rows(NamedTuple):
    here: jax.Array
    """[n, d] φ(s, a)"""
    following: jax.Array
    """[n, d] φ(s', a') with the actor's a', nothing after a termination"""
    costs: jax.Array
    real: jax.Array
    """[n] 0 for steps that were imagined after the end"""


def episode_cost(config: Config, logs: Logs, params: Params, key: jax.Array) -> EpisodeCost:
    """Of a population one member after the other: its features are far larger than all else that it holds."""
    found: EpisodeCost = sequential_vmap(partial(_episode_cost, config))(logs, params, key)
    return found


def _episode_cost(config: Config, logs: Logs, params: Params, key: jax.Array) -> EpisodeCost:
    """The actor's cost by extraction in closed form, held to what an episode can cost.

    Solved twice: on a sketch, as precise as the rows are everywhere, and then where that says that the actor goes.
    """
    actor = config.actor(logs.transitions.actions.shape[-1])

    def act(observations: jax.Array, key: jax.Array) -> jax.Array:
        return draw(actor.apply(params["actor"], observations), key, squash=config.squash)

    rows, initial = _logged(logs.probe, act, key)
    doubt = jnp.zeros(())
    if logs.model is not None:
        imagined, strange = _imagined(logs, logs.model, act, jax.random.fold_in(key, 1))
        rows = jax.tree.map(lambda *parts: jnp.concatenate(parts), rows, imagined)
        doubt = jnp.maximum(strange - STRANGE, 0.0) * len(logs.episode) * logs.highest_cost

    def solved(rows: _Rows, weights: jax.Array) -> tuple[LinearModel, jax.Array]:
        """The process in the features, and what an episode meets of them."""
        n = rows.real.sum()
        weighted = (rows.real * weights)[:, None] * rows.here
        means = weighted.T @ rows.here / n, rows.following.T @ weighted / n, weighted.T @ rows.costs[:, None] / n
        model = fit_model(*means, initial, RIDGE * logs.probe.basis.roughness / n)
        return model, expected_features(model, logs.episode)

    sketch = jax.tree.map(lambda column: column[::SKETCH], rows)
    theta = correction_coefficients(*solved(sketch, sketch.real))
    model, expected = solved(rows, relevance(rows.real * (rows.here @ theta)))
    cost = expected @ model.values[:, 0]
    return EpisodeCost(jnp.clip(cost, 0.0, len(logs.episode) * logs.highest_cost), doubt)


def _logged(probe: Probe, act: Act, key: jax.Array) -> tuple[_Rows, jax.Array]:
    """Rows of the logs with the actor's actions, and the mean of φ where it begins."""
    observations = jnp.concatenate([probe.next_observations, probe.initial_observations])
    then = features(probe.basis, jnp.concatenate([observations, act(observations, key)], -1))
    n = len(probe.here)
    alive = 1 - probe.terminals
    return _Rows(probe.here, alive[:, None] * then[:n], probe.costs, jnp.ones(n)), then[n:].mean(0)


def _imagined(logs: Logs, model: Model, act: Act, key: jax.Array) -> tuple[_Rows, jax.Array]:
    """Whole episodes of the actor in the model, and the share of strange states."""
    steps = min(len(logs.episode), LONGEST)
    start_key, key = jax.random.split(key)
    starts = draw_initial(logs, start_key, max(1, IMAGINED_ROWS // steps))
    episodes, lived = jax.tree.map(
        lambda column: column.reshape(-1, *column.shape[2:]), imagine(model, act, starts, steps, key)
    )
    here, then = (
        features(logs.probe.basis, jnp.concatenate(pair, -1))
        for pair in (
            (episodes.observations, episodes.actions),
            (episodes.next_observations, episodes.next_actions),
        )
    )
    real = lived.astype(jnp.float32)
    strange = real @ are_strange(model, episodes.observations) / real.sum()
    return _Rows(here, ~episodes.ended[:, None] * then, episodes.values[:, 1], real), strange
