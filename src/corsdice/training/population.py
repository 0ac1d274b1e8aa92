"""The population: every seed with every α and every cost limit, on one leading axis of one compiled program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice.algorithms import Config, Hypers, by_name
from corsdice.algorithms.logs import Logs, safe_rows
from corsdice.costs import CostLimit
from corsdice.data.dataset import Dataset

Mode = Literal["auto", "vmap", "map"]
WIDE = 128
"""From this width on, members one after another are faster on a CPU than side by side."""


class Member(NamedTuple):
    seed: int
    alpha: float
    limit: CostLimit | None = None
    """None of a family, which serves every limit."""
    settings: tuple[tuple[str, float], ...] = ()
    """Hyper-parameters of its own, by name, before those that all members share."""

    @property
    def name(self) -> str:
        own = "".join(f"-{name}{value:.6g}" for name, value in self.settings)
        limit = "" if self.limit is None else f"-limit{self.limit.episode:.6g}"
        return f"seed{self.seed}-alpha{self.alpha:.6g}{limit}{own}"

    def __str__(self) -> str:
        own = "".join(f", {name} {value:g}" for name, value in self.settings)
        limit = "" if self.limit is None else f", limit {self.limit.episode:.6g}"
        return f"seed {self.seed}, α {self.alpha:g}{limit}{own}"


def members_of(seeds: int, alphas: Sequence[float], limits: Sequence[CostLimit | None]) -> list[Member]:
    return [Member(seed, alpha, limit) for limit, alpha, seed in product(limits, alphas, range(seeds))]


def hypers_of(members: Sequence[Member], dataset: Dataset, settings: dict[str, Any]) -> Hypers:
    """The traced settings of all members, [members] each."""
    each = [
        Hypers(member.alpha, **_limit_of(member, dataset), **(settings | dict(member.settings))) for member in members
    ]
    return jax.tree.map(lambda *values: jnp.asarray(np.array(values)), *each)


def _limit_of(member: Member, dataset: Dataset) -> dict[str, Any]:
    limit = member.limit
    if limit is None:
        return {}
    return {
        "episode_limit": limit.episode,
        "per_step_limit": limit.per_step,
        "episode_per_step": limit.episode_per_step,
        "safe_rows": np.int32(safe_rows(dataset, limit.episode)),
    }


def keys_of(members: Sequence[Member]) -> jax.Array:
    """One key a seed: members that differ in α or limit see the same draws."""
    return jnp.stack([jax.random.key(member.seed) for member in members])


def resolve(mode: Mode, config: Config) -> Mode:
    if mode != "auto":
        return mode
    return "map" if jax.default_backend() == "cpu" and max(config.widths, default=0) >= WIDE else "vmap"


@partial(jax.jit, static_argnames=("algorithm", "config", "mode"))
def initial_states(algorithm: str, config: Config, mode: Mode, hypers: Hypers, logs: Logs, keys: jax.Array) -> Any:
    module = by_name(algorithm).module
    return _over_members(mode, lambda hypers, key: module.init(config, hypers, logs, key), hypers, keys)


class Chunk(NamedTuple):
    states: Any
    """[members, ...]"""
    metrics: dict[str, jax.Array]
    """[members] means over the chunk"""
    failed_at: jax.Array
    """[members] the first step of the chunk with a metric that is not finite, or its length"""
    failures: dict[str, jax.Array]
    """[members] whether each metric was not finite at that step"""


@partial(jax.jit, static_argnames=("algorithm", "config", "mode", "length"))
def run_chunk(
    algorithm: str,
    config: Config,
    mode: Mode,
    length: int,
    hypers: Hypers,
    logs: Logs,
    states: Any,
    start: jax.Array,
    keys: jax.Array,
) -> Chunk:
    """`length` updates of every member from step `start` on: one trace, whatever the population."""
    module = by_name(algorithm).module

    def member(hypers: Hypers, key: jax.Array, state: Any) -> Chunk:
        def update(state: Any, step: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
            return module.update(config, hypers, logs, state, step, jax.random.fold_in(key, step))

        state, metrics = jax.lax.scan(update, state, start + jnp.arange(length))
        wrong = jax.tree.map(lambda values: ~jnp.isfinite(values), metrics)
        anywhere = jnp.stack(list(wrong.values())).any(0)
        # A loss tells a step late that parameters have broken, and the last step has none after it.
        broken = ~jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(state)]).all()
        last = length - 1
        failed_at = jnp.where(anywhere.any(), anywhere.argmax(), jnp.where(broken, last, length))
        at = jnp.minimum(failed_at, last)
        return Chunk(
            state,
            jax.tree.map(jnp.mean, metrics),
            failed_at,
            jax.tree.map(lambda flags: flags[at], wrong) | {"parameters": broken},
        )

    return _over_members(mode, member, hypers, keys, states)


def _over_members(mode: Mode, function: Any, *arguments: Any) -> Any:
    if mode == "vmap":
        return jax.vmap(function)(*arguments)
    return jax.lax.map(lambda argument: function(*argument), arguments)
