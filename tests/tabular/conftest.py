import jax.numpy as jnp
import pytest
from small_problems import make_logs

from corsdice import tabular


@pytest.fixture(autouse=True)
def _float64():
    with tabular.float64():
        yield


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
