"""What policies return and cost, estimated from logs: records that people read and files keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from corsdice import ope
from corsdice.algorithms import by_name
from corsdice.algorithms.logs import Batch
from corsdice.costs import CostLimit
from corsdice.data.dataset import Dataset
from corsdice.dynamics import Model
from corsdice.ope import behaviour, extraction
from corsdice.ope.estimate import Sums
from corsdice.ope.estimators import WITH_POLICY_CORRECTION, estimator, naive
from corsdice.ope.evidence import RawPolicy
from corsdice.ope.networks import Training
from corsdice.policy import Policy
from corsdice.training.run import Outcome
from corsdice.training.ship import Models, Shipped

BINS = 40
SEMIDICE = ("corsdice-paper", "semidice", "naive-semidice")
"""Algorithms whose w is a policy correction, which the naive estimate mistakes for a stationary one."""


class Assessor:
    """Estimates on one set of logs; what all policies share is computed once, and runs in the same units share it.

    The model of one step is fitted to the evidence unless another is given.
    """

    def __init__(
        self,
        evidence: ope.Evidence,
        others: Sequence[str] = (),
        training: Training | None = None,
        model: Callable[[], Model] | None = None,
    ) -> None:
        self.evidence = evidence
        self.training = training or Training()
        self.extraction = extraction.estimator(evidence, model)
        self._others = {name: estimator(name, evidence, self.training) for name in others}
        self._logged: jax.Array | None = None
        if any(name in WITH_POLICY_CORRECTION for name in others):
            self._logged = behaviour.behaviour_log_density(evidence, self.training)

    def ask(self, policy: Policy) -> ope.Question:
        question = ope.ask(self.evidence, policy)
        if self._logged is None:
            return question
        own = behaviour.policy_log_density(self.evidence, policy, question, self.training)
        return question._replace(policy_correction=behaviour.policy_correction(own, self._logged))

    def ask_function(self, policy: RawPolicy, observation_shape: tuple[int, ...]) -> ope.Question:
        """Of any function of observations; where a density is needed, it is fitted to what the function does."""
        question = ope.ask_function(self.evidence, policy, observation_shape)
        if self._logged is None:
            return question
        own = behaviour.function_log_density(self.evidence, question, self.training)
        return question._replace(policy_correction=behaviour.policy_correction(own, self._logged))

    def record(self, question: ope.Question, limit: CostLimit) -> dict[str, Any]:
        """Estimates in both units, diagnostics, and the verdict on the limit."""
        found = self.extraction(question)
        verdict = ope.judge(found.episode.cost, found.diagnostics, limit.episode)
        diagnostics = found.diagnostics._asdict()
        counts, edges = np.histogram(diagnostics.pop("corrections"), BINS)
        return {
            "cost_limit": limit.episode,
            "unit": f"undiscounted sum over an episode of {limit.horizon} steps",
            **_values(found.episode),
            "discounted": _values(found.discounted) | {"cost_limit": limit.discounted},
            "other_estimators": {name: _values(of(question).discounted) for name, of in self._others.items()},
            **diagnostics,
            "verdict": verdict.verdict,
            "reason": verdict.reason,
            "words": str(verdict),
            "weights": {"edges": edges.tolist(), "counts": counts.tolist()},
        }

    def learned(self, outcome: Outcome, shipped: Shipped) -> dict[str, float | None]:
        """What the learner's own w(a|s) says of an episode's cost, where it has one.

        `pi_w_cost` is that of π_w = w π_D, by extraction on features of the state: where it is far from the actor's,
        the actor is another policy. `naive_cost` is E_D[w(a|s) c], what extraction is there to put right.
        """
        if outcome.plan.algorithm not in SEMIDICE:
            return {"pi_w_cost": None, "naive_cost": None}
        own = own_correction(outcome, int(shipped.policy.about["member"]), self.evidence)
        question = ope.ask(self.evidence, shipped.policy, 0, own)
        of_w = extraction.estimator(self.evidence, states=True, waves=(extraction.WAVES,))(question)
        limit = shipped.limit
        per_step = (1 - limit.discount) * naive(self.evidence, question).discounted.cost.value
        return {"pi_w_cost": of_w.episode.cost.value, "naive_cost": per_step * limit.episode_per_step}


def assessor_of(
    outcome: Outcome, evidence: Dataset, models: Models | None = None, others: Sequence[str] = ()
) -> Assessor:
    """On logs that the run was not trained on, and, where models are given, with what they imagine."""
    plan = outcome.plan
    told_by = ope.evidence_of(evidence, outcome.units, plan.horizon, plan.discount)
    return Assessor(told_by, others, model=None if models is None else (lambda: models.first))


def assess(
    outcome: Outcome,
    policies: Sequence[Shipped],
    assessor: Assessor,
    progress: Callable[[str], None] = lambda name: None,
) -> list[dict[str, Any]]:
    """One record for each policy."""

    def result(each: Shipped) -> dict[str, Any]:
        record = assessor.record(assessor.ask(each.policy), each.limit)
        progress(each.name)
        return {"member": each.name} | record | assessor.learned(outcome, each)

    first = [result(each) for each in policies[:1]]  # alone, so that what all share is compiled and fitted once
    with ThreadPoolExecutor(2) as beside:
        return first + list(beside.map(result, policies[1:]))


def _values(sums: Sums) -> dict[str, Any]:
    return {"return": sums.returned._asdict(), "cost": sums.cost._asdict()}


def own_correction(outcome: Outcome, index: int, evidence: ope.Evidence) -> jax.Array:
    """w(a|s) [rows] as the learner has it, made to have mean 1."""
    module = by_name(outcome.plan.algorithm).module
    hypers, state = jax.tree.map(lambda leaf: leaf[index], (outcome.hypers, outcome.states))
    unused = jnp.zeros(evidence.rows)
    rows = Batch(evidence.observations, evidence.actions, unused, unused, evidence.next_observations, unused)
    w = module.corrections(outcome.plan.config, hypers, None, state, rows)
    return w / w.mean()
