"""The family over λ: what it is asked for, what it learns, and that what is thought of its policies is true."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import corsdice
from corsdice import envs, tabular
from corsdice.algorithms import by_name, family
from corsdice.algorithms.logs import penalised_rewards, steps_ahead
from corsdice.conditions import (
    AXES,
    MULTIPLIERS,
    Point,
    alpha_of,
    condition_of,
    multiplier_features,
    multiplier_seen,
)
from corsdice.data.split import split
from corsdice.envs.simulate import simulate
from corsdice.errors import UserError
from corsdice.ope import evidence_of, standard_function
from corsdice.ope.estimate import Interval, Risk
from corsdice.ope.frontier import Frontier, FrontierPoint, refined
from corsdice.ope.imagined import ensemble_of
from corsdice.training import trace
from corsdice.training.run import Trainer, plan_of
from corsdice.training.ship import models_of, shipped, traced

TASK, LIMITS = "point-run", (10.0, 20.0, 40.0)


@pytest.fixture(scope="module")
def logs():
    return envs.collect(envs.TASKS[TASK], 0, 300)


@pytest.fixture(scope="module")
def trainer(logs):
    options = {"steps": 2000, "widths": (64, 64), "batch_size": 128, "imagined_rows": 20_000}
    trainer = Trainer(plan_of("corsdice", logs, [], chunk=1000, options=options), logs)
    while not trainer.outcome.done:
        trainer.advance()
    return trainer


@pytest.fixture(scope="module")
def learned(trainer):
    return traced(trainer.outcome, trainer.split, models_of(trainer.outcome, trainer.split))


def test_positions_and_what_they_stand_for_are_inverse():
    positions = jnp.linspace(0, 1, 11)
    for axis in AXES.values():
        np.testing.assert_allclose(axis.position(axis.at(positions)), positions, atol=1e-5)
        assert axis.at(0.0) == pytest.approx(axis.smallest)
        assert axis.at(1.0) == pytest.approx(axis.largest, rel=1e-5)
    np.testing.assert_allclose(multiplier_seen(multiplier_features(positions)), MULTIPLIERS.at(positions), rtol=1e-3)


def test_a_condition_is_of_the_size_that_the_way_expects():
    ways = by_name("corsdice").config().ways(2)
    for way, actor in ways.items():
        point = Point(way, 3.0, 0.5 if way == "improved" else None)
        assert condition_of(point).shape == (actor.conditions,)


@pytest.mark.parametrize("multiplier", [0.0, 0.7, 12.0])
def test_every_row_learns_the_penalised_reward_of_its_own_multiplier(trainer, multiplier):
    """(r - λc)/(1+λ) with α/(1+λ)."""
    hypers = jax.tree.map(lambda leaf: leaf[0], trainer.hypers)
    batch = jax.tree.map(lambda column: column[:5], trainer.logs.transitions)
    position = jnp.full(5, MULTIPLIERS.position(multiplier))
    asked = family.ask(hypers, trainer.logs, batch, position)
    whole = penalised_rewards(trainer.logs.units, batch, jnp.float32(multiplier), hypers.discount)
    np.testing.assert_allclose(asked.rewards * (1 + multiplier), whole, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(asked.alpha * (1 + multiplier), hypers.alpha, rtol=1e-3)
    np.testing.assert_array_equal(asked.batch.observations[:, : batch.observations.shape[1]], batch.observations)


def test_dividing_reward_and_alpha_by_the_same_number_changes_no_correction():
    """Exactly, on a finite MDP: why the family may scale both by 1/(1+λ)."""
    with tabular.float64():
        mdp = tabular.random_constrained_mdp(jax.random.key(3)).mdp
        behaviour = tabular.mixed_behaviour(mdp)
        multiplier, alpha = 4.0, 0.05
        penalised = replace(mdp, rewards=mdp.rewards - multiplier * mdp.costs)
        scaled = replace(penalised, rewards=penalised.rewards / (1 + multiplier))
        whole = tabular.semidice(tabular.logged(penalised, behaviour), alpha=alpha)
        part = tabular.semidice(tabular.logged(scaled, behaviour), alpha=float(alpha_of(alpha, multiplier)))
        np.testing.assert_allclose(part.policy, whole.policy, atol=1e-5)


def test_the_cost_falls_with_the_multiplier_whatever_the_way(learned):
    for way in learned.ways:
        points = [each for each in learned.frontier.points if each.point.way == way]
        small = [each.cost.value for each in points if each.point.multiplier < 0.5]
        large = [each.cost.value for each in points if each.point.multiplier > 20]
        assert max(large) < min(small)


def test_what_is_imagined_of_a_policy_is_what_it_does(learned):
    """At nine in ten points of the frontier: within the intervals, and 2 of the cost or 2 % of the return more."""

    def is_right(point):
        truth = simulate(learned.policy(point), TASK, 400, seed=3)
        costs, returns = ((each.high - each.value, each.value) for each in (point.cost, point.returned))
        return (
            abs(truth["cost"] - costs[1]) <= costs[0] + 2
            and abs(truth["return"] - returns[1]) <= returns[0] + 0.02 * truth["return"]
        )

    found = [is_right(point) for point in learned.frontier.efficient()[::6]]
    assert len(found) >= 10
    assert np.mean(found) >= 0.9


def test_a_limit_is_kept_and_used(trainer, learned):
    for each in shipped(trainer.outcome, LIMITS, learned):
        truth = simulate(each.policy, TASK, 400, seed=3)
        assert 0.5 * each.limit.episode <= truth["cost"] <= each.limit.episode


def test_one_file_serves_every_limit(learned, tmp_path):
    loaded = corsdice.load(learned.save(tmp_path / "family"))
    assert loaded.frontier == learned.frontier
    observations = np.zeros((3, 3), np.float32)
    for limit in (7.0, 20.0):
        one, other = (each.at(cost_limit=limit) for each in (learned, loaded))
        assert one.about == other.about
        np.testing.assert_array_equal(one.seed(0).predict(observations), other.seed(0).predict(observations))
    assert loaded.predict(observations, cost_limit=20).shape == (3, 2)


def test_a_limit_that_nothing_keeps_is_told_with_what_is_reached(learned):
    with pytest.raises(
        UserError, match="no policy of this family is estimated to have a cost of -1 or less: the least is"
    ):
        learned.at(cost_limit=-1)


def point(cost, returned, half=1.0, member=0, strange=0.0, multiplier=1.0, tail=2.0):
    """A policy whose dearest tenth of episodes costs `tail` times the mean."""
    returned, cost, dear = (Interval(value, value - half, value + half) for value in (returned, cost, tail * cost))
    return FrontierPoint(member, Point("draws", multiplier), returned, cost, strange, Risk(cost, dear))


def test_a_limit_may_be_on_the_dear_episodes():
    steady, wild = point(8, 50, tail=1.2), point(9, 60, tail=3.0, multiplier=2.0)
    frontier = Frontier((steady, wild))
    assert frontier.choose(12) == frontier.choose(12, limit_on="quantile") == wild
    assert frontier.choose(12, limit_on="cvar") == steady
    with pytest.raises(UserError, match="a mean cost of the dearest tenth of episodes of 5 or less"):
        frontier.choose(5, limit_on="cvar")
    assert Frontier.from_json(frontier.to_json()) == frontier


def test_the_largest_return_within_the_limit_is_chosen_by_the_upper_end_of_its_cost():
    frontier = Frontier(
        (point(5, 50), point(9.5, 90), point(8.9, 80), point(3, 99, strange=0.6), point(1, 10, member=1))
    )
    assert frontier.choose(10).returned.value == 80
    assert frontier.choose(10.5).returned.value == 90
    assert frontier.choose(10, members=[1]).returned.value == 10
    assert frontier.nearest(1).cost.value == 1
    with pytest.raises(UserError, match="ask for at least 2"):
        frontier.choose(1)


def test_nothing_is_chosen_of_what_the_logs_do_not_tell():
    frontier = Frontier((point(5, 50, strange=0.7), point(3, 40, strange=0.6)))
    with pytest.raises(UserError, match="70% of where the best of them goes is unlike anything in the logs"):
        frontier.choose(10)
    assert frontier.nearest(10).returned.value == 50


def test_the_efficient_points_are_beaten_by_none():
    frontier = Frontier((point(5, 50), point(9, 40), point(9, 60), point(2, 50), point(20, 61)))
    assert [(each.cost.value, each.returned.value) for each in frontier.efficient()] == [(2, 50), (9, 60), (20, 61)]


def test_a_frontier_is_the_same_from_its_file():
    frontier = Frontier((point(5, 50), point(9, 40, member=2)))
    assert Frontier.from_json(frontier.to_json()) == frontier


def test_the_gap_that_may_gain_most_is_refined_first():
    """An optimistic middle costs what the cheaper neighbour costs, and returns what the better one returns."""
    steep = [point(1, 10, multiplier=8.0), point(30, 90, multiplier=2.0)]
    flat = [replaced(each, way="mode") for each in (point(28, 20, multiplier=8.0), point(40, 95, multiplier=2.0))]
    first, second = refined([*steep, *flat], 2)
    assert first.way == "draws"
    assert 2 < first.multiplier < 8
    assert second.way == "mode"


def test_a_gap_between_policies_that_are_unlike_the_logs_is_left():
    known = [point(1, 10, multiplier=8.0), point(30, 90, multiplier=2.0)]
    strange = [point(9, 500, multiplier=8.0, strange=0.5), point(30, 900, multiplier=2.0, strange=0.5)]
    assert {each.way for each in refined(known + [replaced(each, way="mode") for each in strange], 5)} == {"draws"}


def test_where_the_best_costs_nothing_no_gap_is_worth_a_look():
    assert refined([point(0, 50, multiplier=1.0), point(0, 40, multiplier=8.0)], 5) == []


def test_what_lies_between_is_asked_once():
    """Neighbours in λ and in imitation; a middle that is known is no gap."""
    grid = [
        replaced(point(cost, cost, multiplier=multiplier), way="improved", imitation=imitation)
        for cost, multiplier, imitation in ((1, 8.0, 1.0), (2, 8.0, 4.0), (3, 2.0, 1.0), (4, 2.0, 4.0))
    ]
    asked = refined(grid, 9)
    assert sorted((each.multiplier == 8.0, each.imitation == 1.0) for each in asked) == [
        (False, False),
        (False, False),
        (False, True),
        (True, False),
    ]
    middle = replaced(point(1.5, 1.5), **asked[0]._asdict())
    assert asked[0] not in refined([*grid, middle], 9)


def replaced(each, **changed):
    return each._replace(point=each.point._replace(**changed))


def test_a_policy_is_imagined_alike_alone_and_among_others(trainer, learned):
    models = models_of(trainer.outcome, trainer.split)()[:1]
    ensemble = ensemble_of(models, jnp.zeros((5, 3)), 100, 1000)
    imagination = trace._Imagination(learned, 0, ensemble)
    points = [each.point for each in learned.frontier.points[: trace.AT_ONCE + 1]]
    together = {each.point: each for each in imagination.of(points)}
    (alone,) = imagination.of(points[-1:])
    assert len(together) == len(points)
    assert alone.cost.value == pytest.approx(together[points[-1]].cost.value, rel=1e-4)
    assert alone.returned.value == pytest.approx(together[points[-1]].returned.value, rel=1e-4)


def test_a_saved_policy_and_a_function_are_imagined_as_the_family_is(trainer, learned):
    """Of the same policy, which draws nothing: compiled, and step by step."""
    models = models_of(trainer.outcome, trainer.split)()[:1]
    evidence = evidence_of(trainer.split.judge, trainer.units, 100, 0.99)
    ensemble = ensemble_of(models, evidence.initial_observations, 100, 3000)
    point = next(each for each in learned.frontier.points if each.point.way == "mode")
    policy = learned.policy(point)
    (of_family,) = trace._Imagination(learned, 0, ensemble).of([point.point])
    of_policy = ensemble.of_policy(policy, trainer.units).sums
    of_function = ensemble.of_function(standard_function(evidence, policy.predict, (3,))).sums
    for told in (of_policy, of_function):
        assert told.cost.value == pytest.approx(of_family.cost.value, rel=1e-2, abs=0.05)
        assert told.returned.value == pytest.approx(of_family.returned.value, rel=1e-3)


def test_three_parts_share_no_episode_and_are_all_there_is(logs):
    parts = split(logs, 0.2)
    counts = [len(part.episodes.starts) for part in parts]
    assert counts == [240, 30, 30]
    rows = np.concatenate([part.observations for part in parts])
    assert len(np.unique(rows, axis=0)) == len(np.unique(logs.observations, axis=0))
    assert len(parts.held_out.episodes.starts) == 60


def test_values_look_ahead_as_far_as_episodes_last():
    ending = envs.collect(envs.TASKS["point-ridge"], 0, 50)
    assert steps_ahead(envs.collect(envs.TASKS[TASK], 0, 5), 0.99) == pytest.approx(100)
    left = np.concatenate([np.arange(length, 0, -1) for length in ending.episodes.lengths])
    ended = np.repeat(ending.terminals[ending.episodes.stops - 1], ending.episodes.lengths)
    expected = np.where(ended, [sum(0.99**t for t in range(n)) for n in left], 100).mean()
    assert steps_ahead(ending, 0.99) == pytest.approx(expected)
