"""Every estimator against the exact return and cost of a finite MDP, on logs with just its probabilities."""

from functools import cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from corsdice import ope
from corsdice.algorithms.logs import units_of
from corsdice.errors import UserError
from corsdice.ope.estimators import DICE, NAMES, WITH_POLICY_CORRECTION, estimator
from corsdice.ope.networks import Training
from finite import DISCOUNT, STATES, embed, exact_episode, exact_visits, make_problem

HORIZON = 50
REPEATS = 20
OF_STATES = Training(10_000, 512, ())
"""Functions of one-hot states: tables."""
OF_PAIRS = {"dualdice": Training(10_000, 512, (32, 32)), "fqe": Training(5_000, 256, (64,))}
"""A number beside a one-hot state needs a hidden layer."""
IN_CLOSED_FORM = ("extraction", "extraction-states")

going_on_or_ending = pytest.mark.parametrize("ending", [False, True], ids=["going-on", "ending"])


class Exam(NamedTuple):
    evidence: ope.Evidence
    question: ope.Question
    discounted: np.ndarray
    """[2] the exact return and cost, as `episode`"""
    episode: np.ndarray
    alive: float
    """(1-γ) Σ_t γ^t P(alive at t), which is E_D[w]"""


@cache
def exam(ending: bool) -> Exam:
    problem = make_problem(ending)
    embedded = embed(problem, REPEATS)
    units = units_of(embedded.dataset, DISCOUNT)
    evidence = ope.evidence_of(embedded.dataset, units, HORIZON, DISCOUNT)
    actions = [(numbers[:, None] - units.action_shift) / units.action_scale for numbers in embedded[1:3]]
    question = ope.Question(*(jnp.asarray(each, jnp.float32) for each in (*actions, embedded.policy_correction)))
    visits = exact_visits(problem)
    tables = [np.asarray(table)[:STATES] for table in (problem.mdp.rewards, problem.mdp.costs)]
    discounted = np.array([(visits * table).sum() for table in tables]) / (1 - DISCOUNT)
    return Exam(evidence, question, discounted, exact_episode(problem, HORIZON), float(visits.sum()))


def values(sums):
    return np.array([interval.value for interval in sums])


@going_on_or_ending
def test_the_logs_are_those_of_the_mdp(ending):
    """Episodes begin in its first state, and means over the rows are expectations: the flow equations hold."""
    evidence, question, *_ = exam(ending)
    problem = make_problem(ending)
    w = exact_visits(problem) / problem.distribution
    # In standard units, too, the column of a state is highest in it, and the second action is above the first.
    s, s_next = (np.asarray(each).argmax(-1) for each in (evidence.observations, evidence.next_observations))
    a, a_next, a_first = (np.asarray(each[:, 0] > 0, int) for each in (evidence.actions, *question[:2]))
    assert (s[evidence.episodes.starts] == 0).all()
    assert ending == bool((evidence.alive == 0).any())
    flow = (1 - DISCOUNT) * np.mean(a_first == 0) * np.eye(STATES)[0]
    flow += DISCOUNT * np.bincount(s_next, w[s, a] * np.asarray(evidence.alive) * (a_next == 0)) / len(s)
    np.testing.assert_allclose(np.bincount(s, w[s, a] * (a == 0)) / len(s), flow, atol=1e-7)


@going_on_or_ending
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("models", "naive")])
def test_an_estimator_finds_the_exact_discounted_return_and_cost(name, ending):
    """Within 1 %, and the mean correction within .03."""
    evidence, question, discounted, episode, alive = exam(ending)
    found = estimator(name, evidence, OF_PAIRS.get(name, OF_STATES))(question)
    np.testing.assert_allclose(values(found.discounted), discounted, rtol=0.01)
    if name in IN_CLOSED_FORM:
        np.testing.assert_allclose(values(found.episode), episode, rtol=0.01)
    if found.diagnostics is not None:
        assert found.diagnostics.mean_correction == pytest.approx(alive, abs=0.03)
        assert found.diagnostics.flow_residual < 0.02


@going_on_or_ending
def test_the_naive_estimate_is_far_from_the_truth(ending):
    """By 10 % or 14 % of the return, 8 % or 26 % of the cost: the exact w(a|s) is no stationary correction."""
    evidence, question, discounted, _, _ = exam(ending)
    found = estimator("naive", evidence)(question)
    off = values(found.discounted) / discounted - 1
    assert (np.abs(off) > 0.08).all()
    assert found.diagnostics.flow_residual > 0.1


@pytest.mark.parametrize("name", WITH_POLICY_CORRECTION)
def test_an_estimator_that_begins_with_a_policy_correction_asks_for_it(name):
    evidence, question, *_ = exam(False)
    with pytest.raises(UserError, match="give a policy correction, or fit one"):
        estimator(name, evidence)(question._replace(policy_correction=None))


def test_networks_are_the_same_for_the_same_seed_and_others_for_another():
    evidence, question, *_ = exam(False)
    training = Training(20, 16, (4,))
    first, same, other = (estimator("fqe", evidence, training, seed)(question).discounted for seed in (0, 0, 1))
    assert first == same
    assert first != other


def test_models_ask_for_what_a_policy_does_anywhere():
    evidence, question, *_ = exam(False)
    with pytest.raises(UserError, match="need to know what the policy does anywhere"):
        estimator("models", evidence)(question)


def test_an_estimator_nobody_has_written_is_named():
    with pytest.raises(UserError, match=r"unknown estimator 'guess': choose one of models, extraction, .*fqe, naive"):
        estimator("guess", exam(False).evidence)


def test_every_network_of_corrections_says_whether_it_needs_the_policys():
    assert {name for name, method in DICE.items() if method.corrected} < set(WITH_POLICY_CORRECTION)
