"""The exact solvers work in float64, and only there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax
import jax.numpy as jnp

from corsdice.errors import UserError


@contextmanager
def float64() -> Iterator[None]:
    """Computes in float64 inside the `with`; networks trained outside it keep float32."""
    with jax.enable_x64(True):
        yield


def require_float64(*arrays: jax.Array) -> None:
    """Refuses to compute in less: inside float64() only, and on arrays that were made there."""
    if not jax.config.jax_enable_x64 or any(array.dtype != jnp.float64 for array in arrays):  # type: ignore[attr-defined]
        raise UserError(
            "the exact solvers need float64: make the MDP and solve it in `with corsdice.tabular.float64():`"
        )
