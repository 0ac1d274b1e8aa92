"""What ships of a run: the policy of each member, or of a family the one that each limit chooses from its frontier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from corsdice.algorithms import by_name, family
from corsdice.algorithms.logs import Units, standard_observations
from corsdice.costs import CostLimit, LimitOn
from corsdice.data.dataset import Dataset
from corsdice.data.split import Split
from corsdice.dynamics import Model
from corsdice.errors import UserError
from corsdice.ope import evidence_of
from corsdice.ope.dynamics import fit_ensemble
from corsdice.policy import Policy
from corsdice.policy_family import PolicyFamily
from corsdice.training.run import Outcome, Plan
from corsdice.training.trace import trace

MODEL_ROWS = 500_000
"""That models learn from, at most: whole episodes at random."""


Models = Callable[[], Sequence[Model]]


class Shipped(NamedTuple):
    """A policy for a limit."""

    name: str
    policy: Policy
    limit: CostLimit

    @property
    def limit_on(self) -> LimitOn:
        """What of its cost the limit is put on."""
        limit_on: LimitOn = self.policy.about.get("limit_on", "mean")
        return limit_on


def models_of(outcome: Outcome, split: Split) -> Models:
    """Models of one step, of the logs that a run was trained on; all policies share them."""
    return models_from(split.train, outcome.units, outcome.plan.horizon, outcome.plan.discount)


def models_from(logs: Dataset, units: Units, horizon: int, discount: float) -> Models:
    """Models of one step, fitted when they are first asked for."""
    return cache(lambda: fit_ensemble(evidence_of(logs, units, horizon, discount, MODEL_ROWS)))


def traced(
    outcome: Outcome, split: Split, models: Models, progress: Callable[[str], None] = lambda told: None
) -> PolicyFamily:
    """The family that a run has learned, with its frontier: from first states that nothing was trained on.

    A member whose training broke off has no part in it.
    """
    plan, learned = outcome.plan, outcome.family()
    assert isinstance(plan.config, family.Config)
    starts = standard_observations(split.choose.initial_observations, outcome.units)
    going = [member for member in range(len(plan.members)) if member not in outcome.failures]
    frontier = trace(learned, going, models(), starts, plan.horizon, plan.config.imagined_rows, progress)
    return replace(learned, frontier=frontier)


Groups = dict[str, list[int]]
"""By name: members of a family that a limit chooses among."""


def by_seed(plan: Plan) -> Groups:
    groups: Groups = {}
    for index, member in enumerate(plan.members):
        groups.setdefault(f"seed{member.seed}", []).append(index)
    return groups


def by_member(plan: Plan) -> Groups:
    return {member.name: [index] for index, member in enumerate(plan.members)}


def shipped(
    outcome: Outcome,
    limits: Sequence[float],
    learned: PolicyFamily | None = None,
    groups: Groups | None = None,
    limit_on: LimitOn = "mean",
) -> list[Shipped]:
    """The policies of a run; of a family the best one for each limit, or the nearest to it where none is within.

    A limit chooses among all members, or for each group among its own.
    """
    plan = outcome.plan
    if not by_name(plan.algorithm).is_family:
        return [
            Shipped(member.name, outcome.policy(index), member.limit)
            for index, member in enumerate(plan.members)
            if member.limit is not None
        ]
    if learned is None:
        raise UserError("a family needs its frontier before a limit can choose from it")
    if groups is None:
        groups = {"": list(range(len(plan.members)))}
    return [
        Shipped(
            f"{group}-limit{limit:.6g}".lstrip("-"),
            learned.policy(learned.frontier.nearest(limit, going, limit_on), limit, limit_on),
            CostLimit.episodic(limit, horizon=plan.horizon, discount=plan.discount),
        )
        for limit in limits
        for group, members in groups.items()
        if (going := [index for index in members if index not in outcome.failures])
    ]
