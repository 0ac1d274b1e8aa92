import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np

from corsdice import linear
from corsdice.tabular import float64

MANY_AT_ONCE = """
import jax, jax.numpy as jnp
from corsdice import linear
from corsdice.tabular import float64
with float64():
    def many(matrices, right):
        batched = jax.vmap(linear.solve)
        return sum(batched(matrices + k * jnp.eye(30), right) for k in range(1, 9))
    matrices = jax.random.normal(jax.random.key(0), (200, 30, 30)) + 20 * jnp.eye(30)
    for _ in range(20):
        jax.block_until_ready(jax.jit(many)(matrices, jnp.ones((200, 30))))
print("done")
"""


def test_independent_batched_solves_in_one_program_do_not_deadlock():
    """With jaxlib's own batched LU this program hangs on a machine with few cores."""
    done = subprocess.run([sys.executable, "-c", MANY_AT_ONCE], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "done\n"


def test_batches_agree_with_numpy():
    generator = np.random.default_rng(0)
    square = generator.normal(size=(2, 3, 5, 5))
    positive = square @ np.swapaxes(square, -1, -2) + np.eye(5)
    right = generator.normal(size=(2, 3, 5))
    twice = lambda function: jax.vmap(jax.vmap(function))  # noqa: E731
    expected = np.linalg.solve(positive, right[..., None])[..., 0]
    with float64():
        np.testing.assert_allclose(twice(linear.solve)(jnp.asarray(positive), jnp.asarray(right)), expected, rtol=1e-9)
        factor = twice(linear.cholesky)(jnp.asarray(positive))
        np.testing.assert_allclose(twice(linear.cholesky_solve)(factor, jnp.asarray(right)), expected, rtol=1e-9)
