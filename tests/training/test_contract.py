"""What every algorithm promises (see `corsdice.algorithms.contract`), and what training a population adds to it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from corsdice import envs
from corsdice.algorithms import ALGORITHMS, by_name
from corsdice.algorithms.logs import Batch, Units, batch_of, penalised_rewards, units_of
from corsdice.conditions import Point
from corsdice.ope.estimate import Interval, Risk
from corsdice.ope.frontier import FrontierPoint
from corsdice.training.population import run_chunk
from corsdice.training.run import Trainer, plan_of

STEPS, CHUNK, LIMIT = 40, 20, 40.0
CONSTRAINED = {"multiplier", "estimated_cost", "cost_limit"}
WEIGHTS = {"mean_correction", "effective_sample_size", "zero_weights"}
SAME_PROGRAM = {"f-dvl", "sql", "xql"}
"""SemiDICE but for numbers: see `test_its_relatives_are_semidice_but_for_numbers`."""
SMALL = {"steps": STEPS, "widths": (8,), "batch_size": 16}
SMALL_SCORE = {"score_width": 8, "blocks": 2, "time_embedding": 4, "condition_embedding": 8, "score_batch": 16}
OWN = {
    "d-corsdice": SMALL_SCORE | {"score_steps": 20, "solver_steps": 3, "candidates": 4},
    "d-bc-all": SMALL_SCORE,
    "d-bc-safe": SMALL_SCORE,
}
UNCONSTRAINED = ("bc-all", "bc-safe", "d-bc-all", "d-bc-safe", "odice", "corsdice", "d-corsdice")


@pytest.fixture(scope="module")
def logs():
    return envs.collect(envs.TASKS["point-run"], 0, 20)


def small_plan(algorithm, logs):
    """Two seeds with two α: seed 0 α 0.3, seed 1 α 0.3, seed 0 α 3, seed 1 α 3."""
    choices = {"seeds": 2, "alphas": [0.3, 3.0], "chunk": CHUNK, "mode": "map"}
    return plan_of(
        algorithm, logs, [LIMIT], options=SMALL | OWN.get(algorithm, {}), settings={"learning_rate": 0.01}, **choices
    )


def trained(plan, logs):
    """The trainer at the end of its plan, and the metrics of each chunk."""
    trainer, rows = Trainer(plan, logs), []
    while not trainer.outcome.done:
        rows += trainer.advance()
    return trainer, rows


@pytest.fixture(scope="module", params=[name for name in ALGORITHMS if name not in SAME_PROGRAM])
def population(request, logs):
    return trained(small_plan(request.param, logs), logs)


def has_corrections(trainer):
    return hasattr(by_name(trainer.plan.algorithm).module, "corrections")


def member(tree, index):
    return jax.tree.map(lambda leaf: leaf[index], tree)


def is_family(trainer):
    return by_name(trainer.plan.algorithm).is_family


def actions(trainer, index, logs):
    """Of a member, or of a family's first way at a λ that matters."""
    if not is_family(trainer):
        return trainer.outcome.policy(index).seed(0).predict(logs.observations)
    family = trainer.outcome.family()
    unknown = Interval(0.0, 0.0, 0.0)
    point = FrontierPoint(index, Point(next(iter(family.ways)), 3.0), unknown, unknown, 0.0, Risk(unknown, unknown))
    return family.policy(point).seed(0).predict(logs.observations)


def assert_same(tree, other):
    jax.tree.map(np.testing.assert_array_equal, tree, other)


def differs(tree, other):
    return any((x != y).any() for x, y in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True))


def test_an_update_keeps_every_shape_and_type(population):
    trainer, _ = population
    plan, hypers = trainer.plan, member(trainer.hypers, 0)
    module = by_name(plan.algorithm).module
    state = jax.eval_shape(lambda: module.init(plan.config, hypers, trainer.logs, jax.random.key(0)))
    after, metrics = jax.eval_shape(
        lambda state: module.update(plan.config, hypers, trainer.logs, state, jnp.int32(0), jax.random.key(1)), state
    )
    assert jax.tree.structure(after) == jax.tree.structure(state)
    described = [[(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)] for tree in (state, after)]
    assert described[0] == described[1]
    assert {leaf.shape for leaf in metrics.values()} == {()}
    assert "actor" in state.params


def test_metrics_are_finite_and_hold_what_is_promised(population):
    trainer, rows = population
    assert trainer.outcome.failures == {}
    assert [(row["step"], row["member"]) for row in rows] == [(s, m) for s in (20, 40) for m in range(4)]
    for row in rows:
        assert np.isfinite(list(row.values())).all()
        assert "policy_loss" in row
        if trainer.plan.algorithm not in UNCONSTRAINED:
            assert row.keys() >= CONSTRAINED
            assert row["multiplier"] >= 0
            assert row["cost_limit"] == pytest.approx(LIMIT)
        if has_corrections(trainer):
            assert row.keys() >= WEIGHTS
            assert 0 <= row["effective_sample_size"] <= 1 + 1e-6
            assert 0 <= row["zero_weights"] <= 1
            assert row["mean_correction"] >= 0


def test_the_state_has_moved_and_is_finite(population, logs):
    trainer, _ = population
    start = Trainer(trainer.plan, logs).outcome.states
    assert differs(start.params["actor"], trainer.outcome.states.params["actor"])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(trainer.outcome.states))


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(population, logs):
    trainer, rows = population
    again, rows_again = trained(trainer.plan, logs)
    assert_same(again.outcome.states, trainer.outcome.states)
    assert rows_again == rows
    first, second = (actions(trainer, index, logs) for index in (0, 1))
    assert (first != second).any()


def test_corrections_are_one_number_a_row_none_negative(population):
    trainer, _ = population
    if not has_corrections(trainer):
        pytest.skip("has none, or one for every λ")
    plan, batch = trainer.plan, trainer.logs.transitions
    module = by_name(plan.algorithm).module
    hypers, state = member((trainer.hypers, trainer.outcome.states), 0)
    w = module.corrections(plan.config, hypers, trainer.logs, state, batch)
    assert w.shape == batch.rewards.shape
    assert np.isfinite(w).all()
    assert (w >= 0).all()
    assert w.max() > 0


def test_a_member_of_a_population_is_the_member_trained_alone(population, logs):
    trainer, rows = population
    alone, rows_alone = trained(dataclasses.replace(trainer.plan, members=trainer.plan.members[3:]), logs)
    assert_same(member(alone.outcome.states, 0), member(trainer.outcome.states, 3))
    assert rows_alone == [{**row, "member": 0} for row in rows if row["member"] == 3]


def test_alpha_matters_to_what_weighs_and_to_nothing_else(population, logs):
    trainer, _ = population
    small, large = (actions(trainer, index, logs) for index in (0, 2))
    if not (has_corrections(trainer) or is_family(trainer)):
        np.testing.assert_array_equal(small, large)
    else:
        assert np.abs(small - large).max() > 0.01


def test_alpha_means_the_same_whatever_the_scale_of_the_reward(population, logs):
    """1024 changes no digit of a float, so nothing may change; 1000 rounds standard rewards by some 1e-7 of themselves.

    Adam at rate 0.01 moves a parameter by at most 0.4 in 40 steps, so that rounding, amplified a thousandfold, still
    moves an action by less than 1e-3, where another α moves it by more than 0.01 (the test before).
    """
    trainer, _ = population
    exact, rows = trained(trainer.plan, logs._replace(rewards=logs.rewards * np.float32(1024)))
    assert_same(exact.outcome.states, trainer.outcome.states)
    nearly, _ = trained(trainer.plan, logs._replace(rewards=logs.rewards * np.float32(1000)))
    for index in range(4):
        moved = np.abs(actions(nearly, index, logs) - actions(trainer, index, logs)).max(-1) > 1e-3
        # Where two candidates are all but equally good, rounding may take the other one.
        assert moved.mean() <= (0.01 if hasattr(trainer.plan.config, "candidates") else 0.0)
    if "multiplier" in rows[0]:  # told in raw units: what one unit of cost is worth in reward
        assert rows[-1]["multiplier"] == pytest.approx(1024 * population[1][-1]["multiplier"])


@pytest.mark.parametrize("mode", ["map", "vmap"])
def test_one_trace_whatever_the_population(mode, population, monkeypatch):
    """`lower` traces and does not compile; a batch size of its own keeps other tests' traces out of the cache."""
    trainer, _ = population
    plan = trainer.plan
    module = by_name(plan.algorithm).module
    config = dataclasses.replace(plan.config, batch_size=23)
    counted, update = [], module.update
    monkeypatch.setattr(module, "update", lambda *arguments: counted.append(1) or update(*arguments))

    def traces(count):
        counted.clear()
        state, hypers, keys = (
            jax.tree.map(lambda leaf: jnp.repeat(leaf[:1], count, 0), tree)
            for tree in (trainer.outcome.states, trainer.hypers, trainer.keys)
        )
        run_chunk.lower(plan.algorithm, config, mode, CHUNK, hypers, trainer.logs, state, jnp.int32(0), keys)
        return len(counted)

    assert traces(7) == traces(2) == 1


def test_its_relatives_are_semidice_but_for_numbers():
    """f-DVL balances evenly, SQL's α counts twice, XQL's divergence is KL: as in `tabular.semigradient`."""
    semidice = by_name("semidice").config(divergence="chi2")
    assert by_name("f-dvl").config() == semidice
    assert by_name("sql").config() == dataclasses.replace(semidice, alpha_factor=2.0)
    assert by_name("xql").config() == dataclasses.replace(semidice, divergence="kl")
    assert {by_name(name).module for name in SAME_PROGRAM} == {by_name("semidice").module}


def test_standard_units_shift_the_value_of_every_trajectory_alike():
    """Whether it ends early, late or never; r - λc measured from its mean, with the value of having ended put right."""
    generator = np.random.default_rng(0)
    discount, multiplier = 0.9, 0.7
    units = Units(*[np.zeros(1)] * 4, np.float64(2.5), np.float64(4.0), np.float64(-0.3), np.float64(0.5))
    shift = units.reward_shift / units.reward_scale - multiplier * units.cost_shift / units.cost_scale

    def values(length, ends):
        rewards, costs = generator.normal(3, 2, length), generator.uniform(0, 1, length)
        terminals = (np.arange(length) == length - 1) * float(ends)
        standard = Batch(
            None,
            None,
            (rewards - units.reward_shift) / units.reward_scale,
            (costs - units.cost_shift) / units.cost_scale,
            None,
            terminals,
        )
        weights = discount ** np.arange(length)
        raw = weights @ (rewards / units.reward_scale - multiplier * costs / units.cost_scale)
        return raw, weights @ penalised_rewards(units, standard, multiplier, discount)

    for length in (1, 2, 17, 60):
        raw, standard = values(length, ends=True)
        assert standard - raw == pytest.approx(-shift / (1 - discount), rel=1e-12)
    raw, standard = values(500, ends=False)  # what is left after 500 steps weighs 1e-23
    assert standard - raw == pytest.approx(-shift / (1 - discount), rel=1e-12)


def test_terminations_reach_the_rewards_of_logs_that_have_them():
    logs = envs.collect(envs.TASKS["point-ridge"], 0, 20)
    units = units_of(logs, 0.99)
    batch = batch_of(logs, units)
    assert 0 < batch.terminals.sum() < len(batch.terminals)
    changed = np.asarray(penalised_rewards(units, batch, np.float32(0), np.float32(0.99)) - batch.rewards)
    expected = -0.99 * float(units.reward_shift / units.reward_scale) / 0.01
    # 1 - 0.99 keeps some six digits in float32
    np.testing.assert_allclose(changed[batch.terminals == 1], expected, rtol=1e-5)
    assert (changed[batch.terminals == 0] == 0).all()
