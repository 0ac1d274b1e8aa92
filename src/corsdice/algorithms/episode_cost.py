"""What an episode of the actor costs and returns, while it learns: undiscounted, and of the actor itself.

Where a learned model of one step can be believed (`ope.dynamics`), by episodes that it imagines; elsewhere by
extraction in closed form (`corsdice.extraction`), on logs that nothing is trained on.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap

from corsdice.actors import Acts
from corsdice.algorithms.logs import Logs, draw_initial
from corsdice.dynamics import STRANGE, Act, Model, are_strange, imagine
from corsdice.extraction import RIDGE, correction_coefficients, expected_features, features, fit_model, relevance
from corsdice.extraction import Model as LinearModel

IMAGINED_ROWS, FEWEST_EPISODES = 40_000, 40
"""Of one estimate: 200 episodes of 200 steps tell a cost to a fourteenth of its deviation."""


class EpisodeCost(NamedTuple):
    """Undiscounted sums over an episode."""

    value: jax.Array
    doubt: jax.Array
    """To be added if what is imagined and strange, beyond the share that logged states are, costs the most it can."""
    returned: jax.Array
    """The same episode's return, over the scale of rewards."""
    error: jax.Array
    """Standard error of what is imagined; 0 of the closed form, which does not tell it."""


def upper(cost: EpisodeCost) -> jax.Array:
    """What the limit is held against."""
    return cost.value + cost.doubt + cost.error


def unknown_cost() -> EpisodeCost:
    """Before the first estimate."""
    return EpisodeCost(*jnp.zeros(4))


def episode_cost(
    actor: Acts, logs: Logs, params: Any, key: jax.Array, imagined_rows: int = IMAGINED_ROWS
) -> EpisodeCost:
    """Of an actor with its parameters."""
    if logs.model is not None:
        return _imagined_cost(logs, logs.model, partial(actor.draw, params), key, imagined_rows)
    # Of a population one member after the other: the features are far larger than all else that it holds.
    returned, cost = sequential_vmap(partial(_extracted, actor))(logs, params, key)
    return EpisodeCost(cost, jnp.zeros(()), returned / logs.units.reward_scale, jnp.zeros(()))


def _imagined_cost(logs: Logs, model: Model, act: Act, key: jax.Array, rows: int) -> EpisodeCost:
    steps = len(logs.episode)
    start_key, key = jax.random.split(key)
    starts = draw_initial(logs, start_key, max(FEWEST_EPISODES, rows // steps))
    episodes, lived = imagine(model, act, starts, steps, key)
    strange = jax.vmap(partial(are_strange, model))(episodes.observations)
    excess = jnp.maximum((lived & strange).sum() / lived.sum() - STRANGE, 0.0)
    sums = (lived[..., None] * episodes.values).sum(0)
    returned, cost = sums.mean(0)
    error = sums[:, 1].std() / jnp.sqrt(len(starts))
    doubt = excess * lived.sum(0).mean() * logs.highest_cost
    return EpisodeCost(cost, doubt, returned / logs.units.reward_scale, error)


def _extracted(actor: Acts, logs: Logs, params: Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return and cost, the cost held to what an episode can cost.

    Solved twice: as precise as the rows are everywhere, and then where the first solution says that the actor goes.
    """
    probe = logs.probe
    observations = jnp.concatenate([probe.next_observations, probe.initial_observations])
    actions = actor.draw(params, observations, key)
    then = features(probe.basis, jnp.concatenate([observations, actions], -1))
    n = len(probe.here)
    following, initial = (1 - probe.terminals)[:, None] * then[:n], then[n:].mean(0)
    penalty = RIDGE * probe.basis.roughness / n

    def solved(weighted: jax.Array, gram: jax.Array) -> tuple[LinearModel, jax.Array]:
        values = weighted.T @ probe.values / n
        model = fit_model(gram, following.T @ weighted / n, values, initial, penalty)
        return model, expected_features(model, logs.episode)

    model, expected = solved(probe.here, jnp.eye(probe.here.shape[1]))  # orthonormal under these rows
    weights = relevance(probe.here @ correction_coefficients(model, expected))
    weighted = weights[:, None] * probe.here
    model, expected = solved(weighted, weighted.T @ probe.here / n)
    returned, cost = expected @ model.values
    return returned, jnp.clip(cost, 0.0, len(logs.episode) * logs.highest_cost)
