"""What policies return and cost, estimated from logs: records that people read and files keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice import ope
from corsdice.algorithms import by_name
from corsdice.algorithms.logs import Batch
from corsdice.costs import CostLimit, LimitOn
from corsdice.data.dataset import Dataset
from corsdice.ope import behaviour, extraction
from corsdice.ope.dynamics import fit_ensemble
from corsdice.ope.estimate import Sums
from corsdice.ope.estimators import WITH_POLICY_CORRECTION, estimator, naive
from corsdice.ope.evidence import RawPolicy
from corsdice.ope.imagined import IMAGINED_ROWS, Ensemble, Imagined, ensemble_of
from corsdice.ope.networks import Training
from corsdice.policy import Policy
from corsdice.training.run import Outcome
from corsdice.training.ship import Models, Shipped

BINS = 40
SEMIDICE = ("corsdice-paper", "semidice", "naive-semidice")
"""Algorithms whose w is a policy correction, which the naive estimate mistakes for a stationary one."""


class Function(NamedTuple):
    """Any function of observations as a policy."""

    act: RawPolicy
    observation_shape: tuple[int, ...]


class Assessor:
    """Estimates from one set of logs; what all policies share is computed once, and runs in the same units share it.

    Models of one step imagine episodes of a policy from the first states of these logs. They are fitted to these logs
    too, unless others are given.
    """

    def __init__(
        self,
        evidence: ope.Evidence,
        models: Models | None = None,
        others: Sequence[str] = (),
        training: Training | None = None,
    ) -> None:
        self.evidence = evidence
        self.training = training or Training()
        self._models = models or (lambda: fit_ensemble(evidence))
        self._others = {name: estimator(name, evidence, self.training) for name in others}
        self._logged: jax.Array | None = None
        if any(name in WITH_POLICY_CORRECTION for name in others):
            self._logged = behaviour.behaviour_log_density(evidence, self.training)

    @cached_property
    def ensemble(self) -> Ensemble:
        evidence = self.evidence
        return ensemble_of(self._models(), evidence.initial_observations, evidence.horizon, IMAGINED_ROWS)

    def estimate(self, policy: Policy | Function) -> Imagined:
        return self._imagined(self.ensemble, policy)

    def record(self, policy: Policy | Function, limit: CostLimit, limit_on: LimitOn = "mean") -> dict[str, Any]:
        """What is estimated of a policy, and the verdict on the limit."""
        found = self.estimate(policy)
        verdict = found.judge(limit.episode, limit_on)
        counts, edges = np.histogram(found.episodes.costs, BINS)
        return {
            "cost_limit": limit.episode,
            "limit_on": limit_on,
            "unit": f"undiscounted sum over an episode of {limit.horizon} steps",
            **_values(found.sums),
            **{name: interval._asdict() for name, interval in found.episodes.risk._asdict().items()},
            "share_over": found.episodes.share_over(limit.episode)._asdict(),
            "strange": found.strange,
            "verdict": verdict.verdict,
            "reason": verdict.reason,
            "words": str(verdict),
            "episode_costs": {"edges": edges.tolist(), "counts": counts.tolist()},
            "second_opinions": self._second_opinions(policy),
        }

    def _second_opinions(self, policy: Policy | Function) -> dict[str, Any]:
        """Of other estimators, which speak of the discounted process alone, beside the models in that unit."""
        if not self._others:
            return {}
        question = self._question(policy)
        first = {"models": self._imagined(self.ensemble.discounted(self.evidence.discount), policy).sums}
        others = {name: of(question).discounted for name, of in self._others.items()}
        return {name: _values(sums) for name, sums in (first | others).items()}

    def _imagined(self, ensemble: Ensemble, policy: Policy | Function) -> Imagined:
        if isinstance(policy, Policy):
            return ensemble.of_policy(policy, self.evidence.units)
        return ensemble.of_function(ope.standard_function(self.evidence, *policy))

    def _question(self, policy: Policy | Function) -> ope.Question:
        """With w(a|s) where an estimator begins with it; the density of a function is fitted to what it does."""
        if isinstance(policy, Policy):
            question = ope.ask(self.evidence, policy)
        else:
            question = ope.ask_function(self.evidence, *policy)
        if self._logged is None:
            return question
        if isinstance(policy, Policy):
            own = behaviour.policy_log_density(self.evidence, policy, question, self.training)
        else:
            own = behaviour.function_log_density(self.evidence, question, self.training)
        return question._replace(policy_correction=behaviour.policy_correction(own, self._logged))

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
    """On logs that the run was not trained on."""
    plan = outcome.plan
    told_by = ope.evidence_of(evidence, outcome.units, plan.horizon, plan.discount)
    return Assessor(told_by, models, others)


def assess(
    outcome: Outcome,
    policies: Sequence[Shipped],
    assessor: Assessor,
    progress: Callable[[str], None] = lambda name: None,
) -> list[dict[str, Any]]:
    """One record for each policy."""

    def result(each: Shipped) -> dict[str, Any]:
        record = assessor.record(each.policy, each.limit, each.limit_on)
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
