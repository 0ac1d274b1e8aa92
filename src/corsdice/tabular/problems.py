"""The MDPs of the laboratory: random ones, random ones with a binding cost, and four rooms."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.tabular.bellman import fixed_point, greedy_backup, optimal_policy
from corsdice.tabular.mdp import FiniteMDP, expected, from_dense, uniform_policy
from corsdice.tabular.precision import require_float64


@partial(jax.jit, static_argnames=("states", "actions", "successors", "absorbing", "goal_ends"))
def random_mdp(
    key: jax.Array,
    states: int = 30,
    actions: int = 4,
    successors: int = 4,
    discount: float = 0.95,
    absorbing: bool = False,
    goal_ends: bool = False,
) -> FiniteMDP:
    """The random MDP of the paper: Dirichlet(1,…,1) over distinct successors, reward 1 in the hardest goal.

    The goal is the state whose choice as goal minimises V*(s_0), s_0 = 0. With `absorbing` one more state, last, keeps
    whatever enters it, without reward; with `goal_ends` acting in the goal leads there.
    """
    require_float64()
    successor_key, probability_key = jax.random.split(key)
    following = jax.random.uniform(successor_key, (states, actions, states)).argsort(-1)[..., :successors]
    exponential = jax.random.exponential(probability_key, (states, actions, successors))
    probabilities = exponential / exponential.sum(-1, keepdims=True)  # Dirichlet(1, …, 1)
    if absorbing or goal_ends:
        sink = jnp.full((1, actions, successors), states, following.dtype)
        following = jnp.concatenate([following, sink])
        probabilities = jnp.concatenate([probabilities, jnp.full((1, actions, successors), 1 / successors)])

    total = len(following)

    def with_goal(goal: jax.Array) -> FiniteMDP:
        is_goal = jnp.arange(total) == goal
        after = jnp.where(is_goal[:, None, None], states, following) if goal_ends else following
        rewards = jnp.broadcast_to(is_goal[:, None], (total, actions)).astype(probabilities.dtype)
        initial = jax.nn.one_hot(0, total, dtype=probabilities.dtype)
        return FiniteMDP(
            after.astype(jnp.int32), probabilities, rewards, jnp.zeros_like(rewards), initial, jnp.asarray(discount)
        )

    def best_value_at_start(goal: jax.Array) -> jax.Array:
        mdp = with_goal(goal)
        return fixed_point(mdp, mdp.rewards, greedy_backup).nu[0]

    # The start itself is no candidate: a goal there is never the hardest one.
    return with_goal(1 + jax.vmap(best_value_at_start)(jnp.arange(1, states)).argmin())


def mixed_behaviour(mdp: FiniteMDP, optimality: float = 0.5) -> jax.Array:
    """π_D = ½ π* + ½ uniform, the behaviour policy of the paper."""
    return optimality * optimal_policy(mdp, mdp.rewards) + (1 - optimality) * uniform_policy(mdp)


class ConstrainedProblem(NamedTuple):
    mdp: FiniteMDP
    unconstrained_cost: jax.Array
    """Per step, of the policy that ignores the cost: a limit below it binds."""


@partial(jax.jit, static_argnames=("states", "actions", "successors", "absorbing"))
def random_constrained_mdp(
    key: jax.Array,
    binding_limit: float = 0.1,
    states: int = 30,
    actions: int = 4,
    successors: int = 4,
    discount: float = 0.95,
    absorbing: bool = False,
) -> ConstrainedProblem:
    """A random MDP with costs Beta(.2, .2) and one free action a state (the protocol of COptiDICE).

    Redrawn until the unconstrained optimum costs more than `binding_limit` per step.
    """

    def draw(key: jax.Array) -> ConstrainedProblem:
        mdp_key, cost_key, free_key = jax.random.split(key, 3)
        mdp = random_mdp(mdp_key, states, actions, successors, discount, absorbing)
        costs = jax.random.beta(cost_key, 0.2, 0.2, mdp.rewards.shape)
        free = jax.random.randint(free_key, (mdp.states, 1), 0, actions)
        priced = (jnp.arange(actions) != free) & (jnp.arange(mdp.states) < states)[:, None]
        mdp = replace(mdp, costs=jnp.where(priced, costs, 0.0))
        return ConstrainedProblem(mdp, expected(mdp, optimal_policy(mdp, mdp.rewards), mdp.costs))

    first, rest = jax.random.split(key)
    _, problem = jax.lax.while_loop(
        lambda state: state[1].unconstrained_cost <= binding_limit,
        lambda state: (jax.random.split(state[0])[0], draw(jax.random.split(state[0])[1])),
        (rest, draw(first)),
    )
    return problem


FOUR_ROOMS = """
#############
#     #     #
#     #     #
#           #
#     #     #
#     #     #
## ####     #
#     ### ###
#     #     #
#     #     #
#           #
#     #     #
#############
""".strip().splitlines()


class FourRooms(NamedTuple):
    mdp: FiniteMDP
    cells: np.ndarray
    """[S, 2] the row and column of each state."""
    start: int
    goal: int


MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
"""North, east, south, west, as (row, column)."""


def four_rooms(
    start: tuple[int, int] = (1, 1), goal: tuple[int, int] = (9, 9), slip: float = 0.0, discount: float = 0.95
) -> FourRooms:
    """Sutton, Precup and Singh's four rooms: reward 1 for acting in the goal; a move goes astray with chance `slip`.

    A move that goes astray takes one of the four directions at random; a wall keeps the agent where it is.
    """
    cells = np.array([(r, c) for r, row in enumerate(FOUR_ROOMS) for c, place in enumerate(row) if place == " "])
    index = {tuple(cell): i for i, cell in enumerate(cells)}
    lands = np.array([[index.get(tuple(cell + move), i) for move in MOVES] for i, cell in enumerate(cells)])
    transitions = np.zeros((len(cells), len(MOVES), len(cells)))
    rows = np.arange(len(cells))
    for action in range(len(MOVES)):
        transitions[rows, action, lands[:, action]] += 1 - slip
        for astray in range(len(MOVES)):
            transitions[rows, action, lands[:, astray]] += slip / len(MOVES)
    rewards = np.zeros((len(cells), len(MOVES)))
    rewards[index[goal]] = 1.0
    initial = np.zeros(len(cells))
    initial[index[start]] = 1.0
    mdp = from_dense(transitions, rewards=rewards, initial=initial, discount=discount)
    return FourRooms(mdp, cells, index[start], index[goal])
