"""Algorithm 1 of the paper, whole: A and μ tell the cost, λ answers to it, and the policy comes to keep its limit."""

import pytest

from corsdice import envs
from corsdice.envs.simulate import simulate
from corsdice.training.run import Trainer, plan_of

LIMIT = 20.0


@pytest.fixture(scope="module")
def course():
    """The metrics of each 1,000 updates, and what the policy then costs.

    The paper's settings, but for small networks and rates that make a hundredth of its updates enough.
    """
    logs = envs.collect(envs.TASKS["point-run"], 0, 300)
    plan = plan_of(
        "corsdice",
        logs,
        [LIMIT],
        preset="paper",
        alphas=[1.0],
        chunk=1000,
        options={"steps": 6000, "widths": (64, 64), "batch_size": 128},
        settings={"multiplier_rate": 1e-2, "learning_rate": 1e-3, "target_rate": 0.01},
    )
    assert plan.algorithm == "corsdice-paper"
    trainer, found = Trainer(plan, logs), []
    while not trainer.outcome.done:
        (metrics,) = trainer.advance()
        truth = simulate(trainer.outcome.policy(0), "point-run", 200)
        found.append(metrics | {"true_cost": truth["cost"], "true_return": truth["return"]})
    return found


def test_the_multiplier_rises_above_the_limit_and_falls_below_it(course):
    assert course[0]["estimated_cost"] > LIMIT
    assert course[0]["multiplier"] > 0
    highest = max(course, key=lambda each: each["multiplier"])
    assert highest is not course[-1]
    assert course[-1]["multiplier"] < highest["multiplier"]
    below = [each for each in course if each["estimated_cost"] < LIMIT]
    assert course.index(below[0]) <= course.index(highest) + 1


def test_the_policy_comes_to_keep_the_limit(course):
    """λ swings around the one that is sought; without it the cost is 47 (`test_scores.py`)."""
    assert course[0]["true_cost"] > LIMIT
    assert min(each["true_cost"] for each in course) < LIMIT / 2
    assert course[-1]["true_cost"] == pytest.approx(LIMIT, abs=0.3 * LIMIT)
    assert course[-1]["true_return"] > 150
