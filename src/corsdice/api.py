"""Three lines from a file to an action:

    dataset = corsdice.read("logs.hdf5")
    learner = corsdice.CORSDICE().fit(dataset)
    action = learner.policy(cost_limit=20).predict(observation)

A facade: it plans, trains and estimates with the same functions as the command line, in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corsdice.algorithms import by_name
from corsdice.costs import CostLimit, LimitOn
from corsdice.data.dataset import Dataset
from corsdice.errors import UserError
from corsdice.ope import Verdict, preference
from corsdice.ope.frontier import Frontier
from corsdice.ope.imagined import Imagined
from corsdice.policy import Policy
from corsdice.policy_family import PolicyFamily
from corsdice.training.assess import assessor_of
from corsdice.training.run import Plan, Trainer, plan_of
from corsdice.training.ship import Shipped, models_of, shipped, traced


class Learner:
    """An algorithm with its options. After `fit`: policies, and what is estimated of them from logs alone."""

    plan: Plan
    family: PolicyFamily | None = None
    """Every policy for every limit, of an algorithm that learns them at once."""

    def __init__(self, algorithm: str, alphas: Sequence[float] = (), preset: str = "default", **options: Any) -> None:
        self.algorithm, self.alphas, self.preset, self.options = algorithm, list(alphas), preset, options

    def fit(
        self,
        dataset: Dataset,
        cost_limit: CostLimit | Sequence[CostLimit] = (),
        seeds: int = 1,
        horizon: int | None = None,
    ) -> Learner:
        """Trains. A family needs no limit; other algorithms are trained for each of those given.

        `horizon` is the steps an episode may last, where neither a limit nor the data tell.
        """
        limits = [cost_limit] if isinstance(cost_limit, CostLimit) else list(cost_limit)
        if len({(limit.horizon, limit.discount) for limit in limits}) > 1:
            raise UserError("cost limits of one fit must share their horizon and discount")
        self.plan = plan_of(
            self.algorithm,
            dataset,
            [limit.episode for limit in limits],
            horizon=limits[0].horizon if limits else horizon,
            alphas=self.alphas,
            seeds=seeds,
            preset=self.preset,
            options=self.options,
            settings={"discount": limits[0].discount} if limits else {},
        )
        trainer = Trainer(self.plan, dataset)
        while not trainer.outcome.done:
            trainer.advance()
        models = models_of(trainer.outcome, trainer.split)
        if by_name(self.plan.algorithm).is_family:
            self.family = traced(trainer.outcome, trainer.split, models)
        self._shipped = shipped(trainer.outcome, [limit.episode for limit in limits], self.family)
        self._assessor = assessor_of(trainer.outcome, trainer.split.judge, models)
        return self

    @property
    def frontier(self) -> Frontier:
        """What every policy of the family returns and costs."""
        return self._family.frontier

    def policy(self, *, cost_limit: float, limit_on: LimitOn = "mean") -> Policy:
        """The policy for a limit: of a family any, of another algorithm one that it was trained for.

        Where several seeds were trained for it, the one that the estimates prefer: safe first, then return.
        """
        if self.family is not None:
            return self.family.at(cost_limit=cost_limit, limit_on=limit_on)
        trained = [each for each in self._shipped if math.isclose(each.limit.episode, cost_limit, rel_tol=1e-6)]
        if not trained:
            told = ", ".join(f"{limit:g}" for limit in dict.fromkeys(each.limit.episode for each in self._shipped))
            raise UserError(f"{self.algorithm} was not trained for the limit {cost_limit:g}, but for {told}")
        return max(trained, key=self._preference).policy

    def estimate(self, policy: Policy) -> Imagined:
        """Return and cost of a policy, from first states that had no part in training or in any choice."""
        return self._assessor.estimate(policy)

    def verdict(self, policy: Policy, *, cost_limit: float, limit_on: LimitOn = "mean") -> Verdict:
        """Whether the policy keeps a limit, by the same estimate."""
        return self.estimate(policy).judge(cost_limit, limit_on)

    def _preference(self, each: Shipped) -> tuple[bool, float]:
        limit, found = each.limit.episode, self.estimate(each.policy)
        returned, cost = found.sums
        return preference(found.judge(limit).verdict, returned.value, cost.high, limit)

    def save(self, path: Path | str) -> Path:
        """The whole family as PATH.safetensors and PATH.json; `corsdice.load` reads it."""
        return self._family.save(path)

    @property
    def _family(self) -> PolicyFamily:
        if self.family is None:
            raise UserError(
                f"{self.algorithm} learns a policy for each limit, not a family: take .policy(cost_limit=…)"
            )
        return self.family


def CORSDICE(**options: Any) -> Learner:
    """CORSDICE as a family: one training, every limit."""
    return Learner("corsdice", **options)
