"""The exact solvers work in float64, and only there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax

from corsdice.errors import UserError


@contextmanager
def float64() -> Iterator[None]:
    """Computes in float64 inside the `with`; networks trained outside it keep float32."""
    with jax.enable_x64(True):
        yield


def require_float64() -> None:
    if not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise UserError("the exact solvers need float64: put the call inside `with corsdice.tabular.float64():`")
