"""A finite MDP whose truth is known, and logs of it whose frequencies are its probabilities."""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice import tabular
from corsdice.data import Dataset, dataset_from

STATES, ACTIONS = 6, 2
DISCOUNT = 0.9
COPIES = np.array([[1, 3], [2, 2], [3, 3], [4, 2], [1, 1], [1, 1]])
"""How often the logs show each pair, with each of its two successors, which are equally likely."""
QUARTERS = np.array([[3, 1], [1, 3], [3, 1], [1, 3], [3, 1], [2, 2]])
"""What the policy does, in quarters: so few rows hold each of its next actions as often as it takes them."""


class Rows(NamedTuple):
    """A mean over these rows is an exact expectation over s, a and s'."""

    s: np.ndarray
    a: np.ndarray
    s_next: np.ndarray
    terminals: np.ndarray


class Problem(NamedTuple):
    mdp: tabular.FiniteMDP
    """With the absorbing state, last, that the rows never show."""
    rows: Rows
    distribution: np.ndarray
    """[S, A] d_D(s,a), that of the rows."""
    policy: np.ndarray
    """[S, A] another policy than that of the logs."""

    @property
    def policy_correction(self) -> np.ndarray:
        """[S, A] w(a|s)"""
        return self.policy / self.distribution * self.distribution.sum(-1, keepdims=True)


@cache
def make_problem(ending: bool) -> Problem:
    """Two successors of each pair, one of which, of every third pair, is the end if there is one."""
    generator = np.random.default_rng(1)
    successors = np.stack([generator.choice(STATES, 2, replace=False) for _ in range(STATES * ACTIONS)])
    successors[::3, 1] = STATES if ending else successors[::3, 1]
    successors = successors.reshape(STATES, ACTIONS, 2)
    live = (np.arange(STATES + 1) < STATES)[:, None]
    with tabular.float64():
        mdp = tabular.make_mdp(
            successors=np.append(successors, np.full((1, ACTIONS, 2), STATES), 0),
            probabilities=np.full((STATES + 1, ACTIONS, 2), 0.5),
            costs=np.where(live, generator.beta(0.5, 0.5, (STATES + 1, ACTIONS)), 0.0),
            rewards=np.where(live, generator.uniform(-1, 2, (STATES + 1, ACTIONS)), 0.0),
            initial=np.eye(STATES + 1)[0],
            discount=DISCOUNT,
        )
    s, a, place = (np.repeat(index.ravel(), np.repeat(COPIES, 2)) for index in np.indices(successors.shape))
    s_next = successors[s, a, place]
    rows = Rows(s, a, np.minimum(s_next, STATES - 1), s_next == STATES)
    return Problem(mdp, rows, COPIES / COPIES.sum(), QUARTERS / 4)


def exact_visits(problem: Problem) -> np.ndarray:
    """d_π(s,a) [S, A], discounted and normalised, of the states that the logs show."""
    with tabular.float64():
        policy = jnp.append(jnp.asarray(problem.policy), jnp.full((1, ACTIONS), 1 / ACTIONS), 0)
        return np.asarray(tabular.occupancy(problem.mdp, policy))[:STATES]


def exact_episode(problem: Problem, horizon: int) -> np.ndarray:
    """Σ_{t<H} E[r_t] and Σ_{t<H} E[c_t], by following the distribution of the state."""
    mdp = jax.tree.map(np.asarray, problem.mdp)
    at, total = mdp.initial, np.zeros(2)
    for _ in range(horizon):
        visits = at[:STATES, None] * problem.policy
        total += [(visits * values[:STATES]).sum() for values in (mdp.rewards, mdp.costs)]
        at = np.zeros(STATES + 1)
        np.add.at(at, mdp.successors[:STATES], visits[..., None] * mdp.probabilities[:STATES])
    return total


class Embedded(NamedTuple):
    """The rows as logs, each again for every quarter of what the policy does next."""

    dataset: Dataset
    next_actions: np.ndarray
    """[n] numbers of actions"""
    initial_actions: np.ndarray
    """[episodes]"""
    policy_correction: np.ndarray
    """[n] w(a|s), exact"""


def embed(problem: Problem, repeats: int) -> Embedded:
    """States as one-hot observations, the number of an action as the action.

    Every row of the first state begins an episode, as the MDP does; where some rows terminate, every termination ends
    one, and there are as many of them.
    """
    mdp = jax.tree.map(np.asarray, problem.mdp)
    rows = Rows(*(np.repeat(column, 4 * repeats) for column in problem.rows))
    next_actions = np.tile(_in_quarters(problem.rows.s_next), (1, repeats)).ravel()
    order, last = _episodes(rows)
    rows, next_actions = Rows(*(column[order] for column in rows)), next_actions[order]
    one_hot = np.eye(STATES)
    dataset = dataset_from(
        {
            "observations": one_hot[rows.s],
            "actions": rows.a,
            "rewards": mdp.rewards[rows.s, rows.a],
            "costs": mdp.costs[rows.s, rows.a],
            "next_observations": one_hot[rows.s_next],
            "terminals": rows.terminals,
            "timeouts": last & ~rows.terminals,
        }
    )
    initial_actions = np.tile(_in_quarters(np.zeros(1, int))[0], last.sum() // 4)
    return Embedded(dataset, next_actions, initial_actions, problem.policy_correction[rows.s, rows.a])


def _in_quarters(states: np.ndarray) -> np.ndarray:
    """[states, 4] the policy's four actions in each"""
    return (np.arange(4) >= QUARTERS[states, :1]).astype(int)


def _episodes(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """An order of the rows, and which of them, in that order, is the last of its episode."""
    begins, ends = rows.s == 0, rows.terminals
    first = np.flatnonzero(begins & ~ends)
    alone = np.flatnonzero(begins & ends)
    final = np.flatnonzero(ends & ~begins)
    assert len(final) in (0, len(first))
    between = np.array_split(np.flatnonzero(~begins & ~ends), len(first))
    final = final.reshape(len(first), -1)
    parts = [np.concatenate([[one], some, stop]) for one, some, stop in zip(first, between, final, strict=True)]
    parts += [[one] for one in alone]
    last = np.zeros(len(rows.s), bool)
    last[np.cumsum([len(part) for part in parts]) - 1] = True
    return np.concatenate(parts).astype(int), last
