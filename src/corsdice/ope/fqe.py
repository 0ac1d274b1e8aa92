"""Fitted-Q evaluation: Q of the policy by regression on its own next value (Le et al., 2019), without corrections."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.networks import MLP
from corsdice.ope.estimate import Estimate, Sums, bootstrap
from corsdice.ope.evidence import Evidence
from corsdice.ope.networks import Params, Rows, Starts


@dataclass(frozen=True)
class FQE:
    """q = ((1-γ) Q - shift) / scale of return and cost, which are of the order of 1; the value of nothing is Q = 0."""

    shift: tuple[float, ...]
    scale: tuple[float, ...]
    momentum: float = 0.9
    following: float = 0.02

    @property
    def rates(self) -> dict[str, float]:
        return {"q": 1e-3}

    def init(self, key: jax.Array, widths: tuple[int, ...], rows: Rows) -> Params:
        return {"q": MLP(widths, 2).init(key, rows.pairs[:1])}

    def loss(
        self, params: Params, held: Params, rows: Rows, starts: Starts, widths: tuple[int, ...], discount: float
    ) -> jax.Array:
        network = MLP(widths, 2)
        shift, scale = jnp.array(self.shift), jnp.array(self.scale)
        alive = rows.alive[:, None]
        following = alive * network.apply(held["q"], rows.next_pairs) - (1 - alive) * shift / scale
        target = (1 - discount) * (rows.values - shift) / scale + discount * following
        return ((network.apply(params["q"], rows.pairs) - jax.lax.stop_gradient(target)) ** 2).mean()

    def normalised(self, params: Params, pairs: jax.Array, widths: tuple[int, ...]) -> jax.Array:
        """[..., 2] q(s,a)"""
        return MLP(widths, 2).apply(params["q"], pairs)

    def values(self, params: Params, starts: Starts, widths: tuple[int, ...], discount: float) -> jax.Array:
        """[episodes, 2] Q(s_0,a_0)"""
        q = self.normalised(params, starts.pairs, widths)
        return (q * jnp.array(self.scale) + jnp.array(self.shift)) / (1 - discount)


def method_for(evidence: Evidence) -> FQE:
    shift, scale = evidence.values.mean(1), np.maximum(evidence.values.std(1), 1e-6)
    return FQE(tuple(map(float, shift)), tuple(map(float, scale)))


def estimate_of(evidence: Evidence, values: np.ndarray) -> Estimate:
    """From Q at the first states [episodes, 2]. The interval holds the choice of first states and nothing else: how
    well Q is fitted it cannot tell."""
    steps = 1 / (1 - evidence.discount)
    sums = (bootstrap([float(values[:, q].mean())], [values[:, q]], evidence.reachable(q, steps)) for q in range(2))
    return Estimate(Sums(*sums), None)
