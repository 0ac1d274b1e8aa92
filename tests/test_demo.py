import json

import numpy as np
import pytest

import corsdice
from corsdice.cli import main
from corsdice.envs import TASKS, collect
from corsdice.errors import UserError
from corsdice.experiments.demo import METHODS


@pytest.mark.slow
def test_demo_writes_a_row_for_each_method_and_seed_with_the_unit_of_its_estimates(tmp_path, capsys):
    small = "--task point-run --episodes 40 --seeds 2 --steps 20 --clone-steps 20 --widths 8 8 --batch-size 16"
    assert main(["demo", "--out", str(tmp_path / "demo"), *small.split(), "--truth-episodes", "20"]) == 0
    rows = json.loads((tmp_path / "demo" / "summary.json").read_text())
    assert [(row["method"], row["seed"]) for row in rows] == [(method, seed) for method in METHODS for seed in (0, 1)]
    for row in rows:
        assert row["estimate_unit"] == "undiscounted sum over an episode"
        numbers = ("cost_limit", "return", "cost", "estimated_return", "estimated_cost")
        assert all(np.isfinite(row[name]) for name in numbers)
        assert 0 <= row["cost"] <= 100
    assert (tmp_path / "demo" / "corsdice" / "report.html").exists()
    assert "report.html" in capsys.readouterr().out


def test_facade_ships_the_policy_that_the_estimates_choose(tmp_path):
    dataset = collect(TASKS["point-run"], 0, 60)
    limits = [corsdice.CostLimit.episodic(limit, horizon=100) for limit in (10, 50)]
    learner = corsdice.CORSDICE(steps=20, widths=(8, 8), waves=32).fit(dataset, limits, seeds=2)
    judged = list(zip(learner.estimates, learner.verdicts, learner.plan.members, strict=True))
    assert len(learner.policies) == len(judged) == 4
    met = [found.episode.returned.value for found, verdict, _ in judged if verdict.verdict == "meets"]
    excess = [found.episode.cost.high - member.limit.episode for found, _, member in judged]
    if met:
        assert learner.estimates[learner.best].episode.returned.value == max(met)
    else:
        assert excess[learner.best] == min(excess)
    observations = np.zeros((3, 3), np.float32)
    again = corsdice.load(learner.save(tmp_path / "policy"))
    learner.policy.seed(0)
    np.testing.assert_array_equal(again.seed(0).predict(observations), learner.predict(observations))


def test_facade_refuses_limits_that_speak_of_different_episodes():
    dataset = collect(TASKS["point-run"], 0, 10)
    limits = [corsdice.CostLimit.episodic(10, horizon=horizon) for horizon in (100, 200)]
    with pytest.raises(UserError, match="share their horizon"):
        corsdice.CORSDICE().fit(dataset, limits)


def test_facade_refuses_an_option_that_the_algorithm_lacks():
    dataset = collect(TASKS["point-run"], 0, 10)
    with pytest.raises(UserError, match="no option depth"):
        corsdice.CORSDICE(depth=3).fit(dataset, corsdice.CostLimit.episodic(10, horizon=100))
