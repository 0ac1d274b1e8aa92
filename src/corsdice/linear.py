"""Dense factorisations that are safe inside batched programs.

On a CPU, a batched LAPACK call of jaxlib splits its batch over the thread pool and waits for the parts while it holds a
thread of that same pool. As many such calls as there are threads, independent of each other in one program, wait
forever (seen with jaxlib 0.10.2 on two cores). Here a batch is therefore a loop of single factorisations, which never
wait; for matrices of a few dozen rows that costs little, and for larger ones nothing.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap


@sequential_vmap
def solve(matrix: jax.Array, right: jax.Array) -> jax.Array:
    """matrix^-1 right, by LU."""
    return jnp.linalg.solve(matrix, right)


@sequential_vmap
def cholesky(matrix: jax.Array) -> jax.Array:
    """The lower factor of a positive definite matrix."""
    return jnp.linalg.cholesky(matrix)


@sequential_vmap
def cholesky_solve(factor: jax.Array, right: jax.Array) -> jax.Array:
    """(L L^T)^-1 right."""
    return jax.scipy.linalg.cho_solve((factor, True), right)
