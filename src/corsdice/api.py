"""Three lines from a file to an action:

    dataset = corsdice.read("logs.hdf5")
    learner = corsdice.CORSDICE(alpha=0.3).fit(dataset, cost_limit=CostLimit.episodic(20, horizon=200))
    action = learner.predict(observation)

A facade: it plans, trains and estimates with the same functions as the command line, in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corsdice.costs import CostLimit
from corsdice.data.dataset import Dataset
from corsdice.errors import UserError
from corsdice.ope import EpisodeEstimate, Verdict, judge, preference
from corsdice.policy import Policy
from corsdice.training.assess import assessor_of
from corsdice.training.run import DEFAULT_ALPHA, Plan, Trainer, plan_of


class Learner:
    """An algorithm with its options. After `fit`: one policy, estimate and verdict for each seed and limit."""

    plan: Plan
    policies: list[Policy]
    estimates: list[EpisodeEstimate]
    verdicts: list[Verdict]

    def __init__(self, algorithm: str, alpha: float = DEFAULT_ALPHA, preset: str = "default", **options: Any) -> None:
        self.algorithm, self.alpha, self.preset, self.options = algorithm, alpha, preset, options

    def fit(self, dataset: Dataset, cost_limit: CostLimit | Sequence[CostLimit], seeds: int = 1) -> Learner:
        limits = [cost_limit] if isinstance(cost_limit, CostLimit) else list(cost_limit)
        if len({(limit.horizon, limit.discount) for limit in limits}) != 1:
            raise UserError("cost limits of one fit must share their horizon and discount")
        self.plan = plan_of(
            self.algorithm,
            dataset,
            [limit.episode for limit in limits],
            horizon=limits[0].horizon,
            alphas=[self.alpha],
            seeds=seeds,
            preset=self.preset,
            options=self.options,
            settings={"discount": limits[0].discount},
        )
        trainer = Trainer(self.plan, dataset)
        while not trainer.outcome.done:
            trainer.advance()
        members = range(len(self.plan.members))
        self.policies = [trainer.outcome.policy(index) for index in members]
        assessor = assessor_of(trainer.outcome, trainer.held)
        self.estimates = [assessor.extraction(assessor.ask(policy)) for policy in self.policies]
        self.verdicts = [
            judge(found.episode.cost, found.diagnostics, member.limit.episode)
            for found, member in zip(self.estimates, self.plan.members, strict=True)
        ]
        return self

    @property
    def best(self) -> int:
        """The member to ship, told by the estimates alone: the highest return of those that meet their limit.

        Where none is known to, the one whose cost is furthest below its limit, or least above it.
        """

        def key(index: int) -> tuple[bool, float]:
            found = self.estimates[index].episode
            limit = self.plan.members[index].limit.episode
            return preference(self.verdicts[index].verdict, found.returned.value, found.cost.high, limit)

        return max(range(len(self.policies)), key=key)

    @property
    def policy(self) -> Policy:
        return self.policies[self.best]

    def predict(self, observations: Any) -> np.ndarray:
        """Actions of the policy to ship; see `Policy.predict`."""
        return self.policy.predict(observations)

    def save(self, path: Path | str) -> Path:
        """The policy to ship, as PATH.safetensors and PATH.json; `corsdice.load` reads it."""
        return self.policy.save(path)


def CORSDICE(alpha: float = DEFAULT_ALPHA, **options: Any) -> Learner:
    """The paper's algorithm: SemiDICE, extraction, and λ moved by the estimate."""
    return Learner("corsdice", alpha, **options)
