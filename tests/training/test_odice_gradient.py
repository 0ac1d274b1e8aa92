"""ODICE's gradient: what is left of the backward part is orthogonal to the forward one, as in the exact solver."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from corsdice.algorithms import odice
from corsdice.algorithms.contract import Hypers
from corsdice.algorithms.logs import Batch, Units

STATES = 4
LARGE = 1e3
"""States are this times unit vectors, so ν is a table: the bias that all share has a millionth of the gradient."""
HYPERS = Hypers(0.7, 0.0, 0.0, 0.0, 0, discount=0.9)
LOGS = SimpleNamespace(units=Units(*[np.zeros(1)] * 4, 0.0, 1.0, 0.0, 1.0))


def batch_of(*transitions):
    here, then = np.transpose(transitions)
    rows, table = len(here), LARGE * np.eye(STATES, dtype=np.float32)
    rewards = np.linspace(0.3, 0.9, rows, dtype=np.float32)
    return Batch(table[here], np.zeros((rows, 1)), rewards, np.zeros(rows), table[then], np.zeros(rows))


def nu_of(values):
    kernel = np.asarray(values, np.float32)[:, None] / LARGE
    return {"params": {"MLP_0": {"Dense_0": {"kernel": jnp.asarray(kernel), "bias": jnp.zeros(1)}}}}


def gradient(batch, backward, beta=0.4, here=(0.1, -0.2, 0.3, 0.05), then=(0.1, -0.2, 0.3, 0.05)):
    """[S] by ν(s), of the table."""
    config = odice.Config(widths=(), balance=beta, backward=backward)
    _, found = odice.orthogonal_gradient(config, HYPERS, LOGS, nu_of(here), nu_of(then), batch)
    return np.asarray(found["params"]["MLP_0"]["Dense_0"]["kernel"][:, 0]) / LARGE


def test_a_transition_to_another_state_gives_all_of_the_backward_gradient():
    """(1-β) - β w on s, and β γ w on s', with w = 1 + (r + γν(s') - ν(s))/α, all twice."""
    w = 1 + (0.3 + 0.9 * -0.2 - 0.1) / 0.7
    expected = 2 * np.array([0.6 - 0.4 * w, 0.4 * 0.9 * w, 0, 0])
    np.testing.assert_allclose(gradient(batch_of((0, 1)), 1.0), expected, atol=1e-5)
    expected[1] = 0
    np.testing.assert_allclose(gradient(batch_of((0, 1)), 0.0), expected, atol=1e-5)


def test_of_a_transition_to_the_same_state_nothing_is_left_of_it():
    loop = batch_of((2, 2))
    np.testing.assert_allclose(gradient(loop, 1.0), gradient(loop, 0.0), atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_added_is_orthogonal_to_the_forward_gradient(seed):
    generator = np.random.default_rng(seed)
    batch = batch_of(*generator.integers(0, STATES, (6, 2)))
    values = generator.normal(size=STATES)
    forward = gradient(batch, 0.0, beta=1.0, here=values, then=values)  # without ν itself
    added = gradient(batch, 1.0, beta=1.0, here=values, then=values) - forward
    assert np.abs(added).max() > 1e-3
    assert abs(added @ forward) < 1e-4 * np.linalg.norm(added) * np.linalg.norm(forward)


def test_after_a_termination_nothing_follows():
    ended = batch_of((0, 1))._replace(terminals=np.ones(1))
    w = 1 + (0.3 - 0.1) / 0.7
    np.testing.assert_allclose(gradient(ended, 1.0), [2 * (0.6 - 0.4 * w), 0, 0, 0], atol=1e-5)
