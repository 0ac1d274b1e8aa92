"""That algorithms learn an embedded task, to a score that is stated.

point-run, 300 logged episodes (a clone of them all returns 181 and costs 38), limit 20, α .3 (CORSDICE also .03), 1,000
updates of 64-wide networks with batches of 128, 200 simulated episodes a policy. `MEASURED` are the least and largest
of five seeds. A seed may fall short of the least return by as much as the five differ, and where even as much above the
largest cost is within the limit, the limit must hold. The λ of Algorithm 1, and of the naive estimate, is on its way by
then.
CORSDICE must keep the limit, and return more than a clone of the episodes within it.
"""

import pytest

from corsdice import envs
from corsdice.algorithms import ALGORITHMS, by_name
from corsdice.envs.simulate import simulate
from corsdice.training.run import Trainer, plan_of
from corsdice.training.ship import models_of, traced

LIMIT = 20.0
MEASURED = {
    # least and largest return, least and largest cost
    "corsdice": (179.0, 181.7, 15.6, 20.1),
    "corsdice-paper": (166.1, 170.5, 25.9, 28.3),
    "bc-all": (180.6, 183.4, 37.8, 40.2),
    "bc-safe": (139.1, 140.1, 1.9, 2.3),
    "semidice": (192.5, 195.2, 47.2, 48.7),
    "naive-semidice": (166.1, 170.7, 26.0, 28.4),
    "f-dvl": (192.9, 195.6, 47.3, 49.1),
    "sql": (186.2, 189.3, 42.0, 43.7),
    "xql": (192.6, 195.6, 47.2, 49.0),
    "odice": (182.9, 185.5, 39.6, 42.1),
    "optidice": (181.1, 183.4, 37.8, 39.1),
    "coptidice": (158.6, 161.1, 17.5, 19.7),
    "bcq-lag": (134.2, 144.5, 0.2, 1.6),
    "bear-lag": (133.8, 136.7, 0.2, 0.5),
    "cpq": (103.3, 129.8, 0.0, 0.0),
    "d-bc-all": (179.9, 183.8, 37.1, 39.9),
    "d-bc-safe": (138.6, 140.4, 2.0, 2.3),
}


@pytest.fixture(scope="module")
def logs():
    return envs.collect(envs.TASKS["point-run"], 0, 300)


def policy_of(trainer):
    """Of a family, the policy that the limit chooses from what logs alone tell."""
    outcome = trainer.outcome
    if not by_name(outcome.plan.algorithm).is_family:
        return outcome.policy(0)
    return traced(outcome, trainer.split, models_of(outcome, trainer.split)).at(cost_limit=LIMIT)


def test_every_algorithm_has_a_score():
    """But for one that takes minutes: `reproduce actors` has it beside its kin."""
    assert MEASURED.keys() == ALGORITHMS.keys() - {"d-corsdice"}


@pytest.mark.parametrize("algorithm", MEASURED)
def test_learns_to_its_score(algorithm, logs):
    options = {"steps": 1000, "widths": (64, 64), "batch_size": 128}
    trainer = Trainer(plan_of(algorithm, logs, [LIMIT], chunk=500, options=options), logs)
    while not trainer.outcome.done:
        trainer.advance()
    truth = simulate(policy_of(trainer), "point-run", 200)
    least_return, largest_return, least_cost, largest_cost = MEASURED[algorithm]
    assert truth["return"] >= least_return - (largest_return - least_return)
    if largest_cost + (largest_cost - least_cost) <= LIMIT:
        assert truth["cost"] <= LIMIT
    if algorithm == "corsdice":
        assert truth["cost"] <= LIMIT
        assert truth["return"] > MEASURED["bc-safe"][1]
