from functools import cache

import jax
import jax.numpy as jnp
import pytest

from corsdice import tabular

ALPHAS = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
BETAS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)


@pytest.fixture(autouse=True)
def _float64():
    with tabular.float64():
        yield


@cache
def make_logs(seed: int = 0, states: int = 12, actions: int = 3, binding_limit: float = 0.1):
    """A small random constrained MDP and its model from logs."""
    with tabular.float64():
        key = jax.random.key(seed)
        truth = tabular.random_constrained_mdp(key, binding_limit, states, actions, 3, 0.9).mdp
        behaviour = tabular.mixed_behaviour(truth)
        counts = tabular.simulate_counts(jax.random.fold_in(key, 1), truth, behaviour, 20, 30)
        return truth, tabular.logged(tabular.mle_model(truth, counts, "uniform"), behaviour)


@pytest.fixture
def logs():
    return make_logs()[1]


@pytest.fixture
def line():
    """Two states in a row, then an absorbing one: hand-made, so that answers are known by heart."""
    return tabular.make_mdp(
        successors=jnp.array([[[1], [2]], [[2], [2]], [[2], [2]]]),
        probabilities=jnp.ones((3, 2, 1)),
        rewards=[[0.0, 1.0], [4.0, 0.0], [0.0, 0.0]],
        costs=[[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]],
        initial=[1.0, 0.0, 0.0],
        discount=0.5,
    )
