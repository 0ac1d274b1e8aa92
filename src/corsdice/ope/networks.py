"""Estimators that train networks: one compiled loop for all of them.

A method is a frozen dataclass with

    init(key, widths, rows) -> parameters, by name
    loss(params, held, rows, starts, widths, discount) -> scalar; no term's gradient reaches another's parameters

where `held` are parameters that follow slowly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from corsdice.errors import UserError
from corsdice.ope.evidence import Evidence, Question

Params = dict[str, Any]


@dataclass(frozen=True)
class Training:
    """How long and with what the networks of an estimator are trained."""

    steps: int = 20_000
    batch_size: int = 256
    widths: tuple[int, ...] = (256, 256)


class Rows(NamedTuple):
    """Transitions, and what the policy does after them, in standard units."""

    observations: jax.Array
    actions: jax.Array
    next_observations: jax.Array
    next_actions: jax.Array
    alive: jax.Array
    values: jax.Array
    """[n, 2] rewards and costs, raw"""
    policy_correction: jax.Array
    """[n] w(a|s); ones where the method does not use it"""

    @property
    def pairs(self) -> jax.Array:
        return jnp.concatenate([self.observations, self.actions], -1)

    @property
    def next_pairs(self) -> jax.Array:
        return jnp.concatenate([self.next_observations, self.next_actions], -1)


class Starts(NamedTuple):
    observations: jax.Array
    actions: jax.Array

    @property
    def pairs(self) -> jax.Array:
        return jnp.concatenate([self.observations, self.actions], -1)


class Method(Protocol):
    @property
    def rates(self) -> dict[str, float]:
        """Learning rates, by the name of the parameters."""

    @property
    def momentum(self) -> float:
        """Adam's β_1."""

    @property
    def following(self) -> float:
        """How fast the held parameters follow."""

    def init(self, key: jax.Array, widths: tuple[int, ...], rows: Rows) -> Params: ...

    def loss(
        self, params: Params, held: Params, rows: Rows, starts: Starts, widths: tuple[int, ...], discount: float
    ) -> jax.Array: ...


def rows_of(evidence: Evidence, question: Question, *, corrected: bool) -> tuple[Rows, Starts]:
    """The evidence with the policy's actions; `corrected` for methods that begin with w(a|s)."""
    w = question.policy_correction
    if corrected and w is None:
        raise UserError("this estimator begins with w(a|s): give a policy correction, or fit one (ope.behaviour)")
    return Rows(
        evidence.observations,
        evidence.actions,
        evidence.next_observations,
        question.next_actions,
        evidence.alive,
        jnp.asarray(evidence.values.T),
        w if corrected and w is not None else jnp.ones(evidence.rows),
    ), Starts(evidence.initial_observations, question.initial_actions)


@partial(jax.jit, static_argnames=("method", "training", "discount"))
def fit(method: Method, training: Training, rows: Rows, starts: Starts, discount: float, key: jax.Array) -> Params:
    """The parameters after all steps of Adam, whose rates fall along a cosine."""
    adam = optax.scale_by_adam(b1=method.momentum)
    batch, widths = training.batch_size, training.widths
    params = method.init(jax.random.fold_in(key, training.steps), widths, rows)
    first, shaped = ravel_pytree(params)  # one vector is sooner compiled than many arrays
    by_name = {
        name: jax.tree.map(partial(jnp.full_like, fill_value=r), params[name]) for name, r in method.rates.items()
    }
    rates = ravel_pytree(by_name)[0]

    def step(carry: tuple[jax.Array, jax.Array, Any], i: jax.Array) -> tuple[tuple[jax.Array, jax.Array, Any], None]:
        flat, held, optimiser = carry
        row_key, start_key = jax.random.split(jax.random.fold_in(key, i))
        index = jax.random.randint(row_key, (batch,), 0, len(rows.alive))
        begin = jax.random.randint(start_key, (batch,), 0, len(starts.actions))
        drawn = jax.tree.map(lambda column: column[index], rows)
        begun = jax.tree.map(lambda column: column[begin], starts)

        def loss(flat: jax.Array) -> jax.Array:
            return method.loss(shaped(flat), shaped(held), drawn, begun, widths, discount)

        direction, optimiser = adam.update(jax.grad(loss)(flat), optimiser)
        decay = 0.5 * (1 + jnp.cos(jnp.pi * i / training.steps))
        moved = flat - rates * decay * direction
        return (moved, optax.incremental_update(moved, held, method.following), optimiser), None

    return shaped(jax.lax.scan(step, (first, first, adam.init(first)), jnp.arange(training.steps))[0][0])
