"""What ships of a run: the policy of each member, or of a family the one that each limit chooses from its frontier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from corsdice.algorithms import by_name, family
from corsdice.algorithms.logs import standard_observations
from corsdice.costs import CostLimit
from corsdice.data.split import Split
from corsdice.dynamics import Model
from corsdice.errors import UserError
from corsdice.ope import evidence_of
from corsdice.ope.dynamics import fit_ensemble
from corsdice.policy import Policy
from corsdice.policy_family import PolicyFamily
from corsdice.training.run import Outcome
from corsdice.training.trace import trace

MODEL_ROWS = 500_000
"""Of the training logs, at most: whole episodes at random."""


Models = Callable[[], Sequence[Model]]


class Shipped(NamedTuple):
    """A policy for a limit."""

    name: str
    policy: Policy
    limit: CostLimit


def models_of(outcome: Outcome, split: Split) -> Models:
    """Models of one step, fitted to the training logs when they are first asked for; all policies share them."""
    plan = outcome.plan
    return cache(lambda: fit_ensemble(evidence_of(split.train, outcome.units, plan.horizon, plan.discount, MODEL_ROWS)))


def traced(
    outcome: Outcome, split: Split, models: Models, progress: Callable[[str], None] = lambda told: None
) -> PolicyFamily:
    """The family that a run has learned, with its frontier: from first states that nothing was trained on."""
    plan, learned = outcome.plan, outcome.family()
    assert isinstance(plan.config, family.Config)
    starts = standard_observations(split.choose.initial_observations, outcome.units)
    frontier = trace(learned, models(), starts, plan.horizon, plan.config.imagined_rows, progress=progress)
    return replace(learned, frontier=frontier)


def shipped(outcome: Outcome, limits: Sequence[float], learned: PolicyFamily | None = None) -> list[Shipped]:
    """The policies of a run; of a family one for each member and limit, the nearest to it where none is within."""
    plan = outcome.plan
    if not by_name(plan.algorithm).is_family:
        return [
            Shipped(member.name, outcome.policy(index), member.limit)
            for index, member in enumerate(plan.members)
            if member.limit is not None
        ]
    if learned is None:
        raise UserError("a family needs its frontier before a limit can choose from it")
    return [
        Shipped(
            f"{member.name}-limit{limit:.6g}",
            learned.policy(learned.frontier.nearest(limit, index), limit),
            CostLimit.episodic(limit, horizon=plan.horizon, discount=plan.discount),
        )
        for limit in limits
        for index, member in enumerate(plan.members)
        if index not in outcome.failures
    ]
