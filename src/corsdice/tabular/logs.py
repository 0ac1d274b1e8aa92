"""From an MDP to logs of a behaviour policy, and from logs to the model that the offline methods see."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp

from corsdice.tabular.mdp import FiniteMDP, occupancy
from corsdice.tabular.precision import require_float64

Unseen = Literal["uniform", "absorbing"]
"""Where a state-action pair that the logs never show leads in the model: to any state alike, or to the last state,
which must be absorbing."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LoggedMDP:
    """What an exact offline method is given: a model, the behaviour policy, and its stationary distribution in it."""

    mdp: FiniteMDP
    behaviour: jax.Array
    """[S, A] π_D(a|s)."""
    state_distribution: jax.Array
    """[S] d_D(s)."""

    @property
    def distribution(self) -> jax.Array:
        """[S, A] d_D(s,a)."""
        return self.state_distribution[..., None] * self.behaviour

    def estimate(self, w: jax.Array, quantity: jax.Array) -> jax.Array:
        """E_D[w(s,a) quantity(s,a)]: the off-policy estimate, right when w is a stationary correction."""
        return (self.distribution * w * quantity).sum()


@jax.jit
def logged(mdp: FiniteMDP, behaviour: jax.Array) -> LoggedMDP:
    """The logs of infinitely long observation of `behaviour` in `mdp`: d_D is exact, so it satisfies the flow."""
    visits = occupancy(mdp, behaviour).sum(-1)
    # A state that cannot be reached gets rounding error from the linear solve; its true share is zero.
    return LoggedMDP(mdp, behaviour, jnp.where(visits > 1e-14, visits, 0.0))


@partial(jax.jit, static_argnames=("episodes", "horizon"))
def simulate_counts(key: jax.Array, mdp: FiniteMDP, policy: jax.Array, episodes: int, horizon: int) -> jax.Array:
    """[S, A, K] how often each successor was drawn in `episodes` episodes, each cut off after `horizon` steps.

    The cut is a timeout: the last state's continuation is simply not observed.
    """
    require_float64()

    def draw(key: jax.Array, probabilities: jax.Array) -> jax.Array:
        """One index for each row of probabilities, by inverting the cumulative sum."""
        cumulative = probabilities.cumsum(-1)
        uniform = jax.random.uniform(key, (episodes, 1)) * cumulative[:, -1:]
        return (uniform >= cumulative).sum(-1)

    def step(carry: tuple[jax.Array, jax.Array], key: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        state, counts = carry
        action_key, successor_key = jax.random.split(key)
        action = draw(action_key, policy[state])
        successor = draw(successor_key, mdp.probabilities[state, action])
        counts = counts.at[state, action, successor].add(1.0)
        return (mdp.successors[state, action, successor], counts), None

    start_key, steps_key = jax.random.split(key)
    start = draw(start_key, jnp.broadcast_to(mdp.initial, (episodes, mdp.states))).astype(jnp.int32)
    carry = (start, jnp.zeros(mdp.successors.shape))
    return jax.lax.scan(step, carry, jax.random.split(steps_key, horizon))[0][1]


@partial(jax.jit, static_argnames=("unseen",))
def mle_model(mdp: FiniteMDP, counts: jax.Array, unseen: Unseen) -> FiniteMDP:
    """The maximum-likelihood model: T̂ from the counts, everything else as it is in `mdp`."""
    totals = counts.sum(-1, keepdims=True)
    frequencies = counts / jnp.where(totals > 0, totals, 1.0)
    if unseen == "absorbing":
        absorbing = jnp.full_like(mdp.successors, mdp.states - 1)
        successors = jnp.where(totals > 0, mdp.successors, absorbing)
        probabilities = jnp.where(totals > 0, frequencies, 1 / counts.shape[-1])
    else:  # every state may follow an unseen pair, so the successors become dense
        shape = (mdp.states, mdp.actions, mdp.states)
        successors = jnp.broadcast_to(jnp.arange(mdp.states, dtype=jnp.int32), shape)
        rows, columns = jnp.arange(mdp.states)[:, None, None], jnp.arange(mdp.actions)[None, :, None]
        seen = jnp.zeros(shape).at[rows, columns, mdp.successors].add(frequencies)
        probabilities = jnp.where(totals > 0, seen, 1 / mdp.states)
    return FiniteMDP(successors, probabilities, mdp.rewards, mdp.costs, mdp.initial, mdp.discount)


def empirical_policy(counts: jax.Array) -> jax.Array:
    """π̂_D(a|s), the share of each action in the logs; uniform in a state that the logs never show."""
    actions = counts.sum(-1)
    totals = actions.sum(-1, keepdims=True)
    return jnp.where(totals > 0, actions / jnp.where(totals > 0, totals, 1.0), 1 / counts.shape[-2])
