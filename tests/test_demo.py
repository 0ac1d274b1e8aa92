import json

import numpy as np
import pytest

import corsdice
from corsdice.cli import main
from corsdice.envs import TASKS, collect
from corsdice.errors import UserError
from corsdice.experiments.demo import BASELINES
from corsdice.ope.verdict import LARGEST_STRANGE


@pytest.mark.slow
def test_demo_writes_a_row_for_each_policy_with_the_unit_of_its_estimates(tmp_path, capsys):
    small = "--task point-run --episodes 60 --seeds 2 --steps 20 --clone-steps 20 --widths 8 8 --batch-size 16"
    limits = "--limits 20 40 60"
    assert main(["demo", "--out", str(tmp_path / "demo"), *f"{small} {limits}".split(), "--truth-episodes", "20"]) == 0
    rows = json.loads((tmp_path / "demo" / "summary.json").read_text())
    expected = [("corsdice", seed, limit) for limit in (20, 40, 60) for seed in (0, 1)]
    expected += [("bc-safe", 0, limit) for limit in (20, 40, 60)]
    expected += [(method, 0, 40) for method in BASELINES]
    assert [(row["method"], row["seed"], row["cost_limit"]) for row in rows] == pytest.approx(expected)
    for row in rows:
        assert row["estimate_unit"] == "undiscounted sum over an episode"
        numbers = ("cost_limit", "return", "cost", "estimated_return", "estimated_cost")
        assert all(np.isfinite(row[name]) for name in numbers)
        assert 0 <= row["cost"] <= 100
    assert (tmp_path / "demo" / "corsdice" / "report.html").exists()
    assert "report.html" in capsys.readouterr().out


def test_facade_serves_every_limit_from_one_training(tmp_path):
    dataset = collect(TASKS["point-run"], 0, 60)
    learner = corsdice.CORSDICE(steps=300, widths=(16, 16), imagined_rows=1000).fit(dataset, seeds=2)
    most = max(point.cost.high for point in learner.frontier.points)
    policy = learner.policy(cost_limit=most)
    points = learner.frontier.points
    known = [point for point in points if point.strange <= LARGEST_STRANGE]
    assert policy.about["estimate"]["return"]["value"] == max(point.returned.value for point in known)
    assert learner.verdict(policy, cost_limit=1e6).verdict != "does not meet"
    least = min(point.cost.high for point in known) + 1e-6
    costs = [learner.estimate(learner.policy(cost_limit=limit)).sums.cost.value for limit in (least, most)]
    assert costs[0] < costs[1]  # of each policy its own, though neither is kept
    observations = np.zeros((3, 3), np.float32)
    again = corsdice.load(learner.save(tmp_path / "family")).at(cost_limit=most)
    np.testing.assert_array_equal(again.seed(0).predict(observations), policy.seed(0).predict(observations))
    with pytest.raises(UserError, match="no policy of this family is estimated to have a cost of -1 or less"):
        learner.policy(cost_limit=-1)


def test_facade_of_an_algorithm_for_one_limit_has_that_limit_alone():
    dataset = collect(TASKS["point-run"], 0, 60)
    limit = corsdice.CostLimit.episodic(50, horizon=100)
    learner = corsdice.Learner("bc-safe", steps=20, widths=(8, 8)).fit(dataset, limit)
    assert learner.policy(cost_limit=50).about["cost_limit"] == pytest.approx(50)
    with pytest.raises(UserError, match="not trained for the limit 20, but for 50"):
        learner.policy(cost_limit=20)
    with pytest.raises(UserError, match="not a family"):
        _ = learner.frontier


def test_facade_refuses_limits_that_speak_of_different_episodes():
    dataset = collect(TASKS["point-run"], 0, 10)
    limits = [corsdice.CostLimit.episodic(10, horizon=horizon) for horizon in (100, 200)]
    with pytest.raises(UserError, match="share their horizon"):
        corsdice.CORSDICE().fit(dataset, limits)


def test_facade_refuses_an_option_that_the_algorithm_lacks():
    dataset = collect(TASKS["point-run"], 0, 10)
    with pytest.raises(UserError, match="no option depth"):
        corsdice.CORSDICE(depth=3).fit(dataset, corsdice.CostLimit.episodic(10, horizon=100))
