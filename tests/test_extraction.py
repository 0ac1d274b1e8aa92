"""Extraction against the truth of finite MDPs: in closed form, and by the two networks of the paper."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from corsdice import envs, ope, tabular
from corsdice.algorithms import algorithm1
from corsdice.algorithms.contract import ADAM, Hypers, descend
from corsdice.algorithms.logs import Batch, units_of
from corsdice.extraction import (
    FLOOR,
    correction_coefficients,
    discounted_features,
    expected_features,
    features,
    fit_basis,
    fit_model,
    project,
    relevance,
)
from corsdice.ope import extraction
from finite import ACTIONS, DISCOUNT, STATES, exact_episode, exact_visits, make_problem

CIRCLE = envs.task_by_name("point-circle")

going_on_or_ending = pytest.mark.parametrize("ending", [False, True], ids=["going-on", "ending"])
evenly_or_not = pytest.mark.parametrize("even", [True, False], ids=["even", "uneven"])


def closed_form(problem, even):
    """The model on φ(s,a) = 1_{s,a}, complete, with E over a' ~ π taken exactly; and ω [S, A], 1 or anything."""
    rows = problem.rows
    omega = np.ones((STATES, ACTIONS)) if even else np.random.default_rng(2).uniform(0.1, 5, (STATES, ACTIONS))
    phi = np.eye(STATES * ACTIONS).reshape(STATES, ACTIONS, -1)
    after = (problem.policy[..., None] * phi).sum(1)  # [S, d] E[φ(s,a') | s]
    following = np.where(rows.terminals[:, None], 0.0, after[rows.s_next])
    here = phi[rows.s, rows.a]
    weighted = omega[rows.s, rows.a][:, None] * here
    values = np.stack([np.asarray(table)[rows.s, rows.a] for table in (problem.mdp.rewards, problem.mdp.costs)], -1)
    means = (part / len(here) for part in (weighted.T @ here, following.T @ weighted, weighted.T @ values))
    return fit_model(*(jnp.asarray(each) for each in (*means, after[0], np.zeros(len(after[0]))))), omega


@going_on_or_ending
@evenly_or_not
@pytest.mark.parametrize("horizon", [1, 10, 200])
def test_the_closed_form_gives_the_undiscounted_return_and_cost_of_an_episode(ending, even, horizon):
    problem = make_problem(ending)
    with tabular.float64():
        model, _ = closed_form(problem, even)
        found = expected_features(model, jnp.ones(horizon)) @ model.values
    np.testing.assert_allclose(found, exact_episode(problem, horizon), rtol=1e-12)


def test_an_ending_makes_long_episodes_cheap():
    """The two problems of these tests are far from each other: terminations matter in them."""
    assert exact_episode(make_problem(True), 200)[1] < 0.1 * exact_episode(make_problem(False), 200)[1]


@going_on_or_ending
@evenly_or_not
def test_the_closed_form_gives_the_discounted_correction(ending, even):
    """ω θ · φ is d_π / d_D as the linear system has it, whatever ω."""
    problem = make_problem(ending)
    with tabular.float64():
        model, omega = closed_form(problem, even)
        theta = correction_coefficients(model, discounted_features(model, DISCOUNT)).reshape(STATES, ACTIONS)
        np.testing.assert_allclose(omega * theta, exact_visits(problem) / problem.distribution, rtol=1e-10)


@going_on_or_ending
def test_the_discounted_features_are_the_sum_over_all_time(ending):
    with tabular.float64():
        model, _ = closed_form(make_problem(ending), even=False)
        time_weights = (1 - DISCOUNT) * DISCOUNT ** jnp.arange(400)  # after which they are below 1e-18
        found = discounted_features(model, DISCOUNT)
        np.testing.assert_allclose(found, expected_features(model, time_weights), rtol=1e-10)


def test_a_penalty_draws_the_model_towards_nothing_and_only_where_it_is_put():
    """One direction alone, whose features share no row with any other: a regression of one number."""
    with tabular.float64():
        gram, cross, values = jnp.diag(jnp.array([0.5, 0.25])), jnp.diag(jnp.array([0.4, 0.2])), jnp.ones((2, 1))
        model = fit_model(gram, cross, values, jnp.ones(2), jnp.array([0.0, 0.75]))
        np.testing.assert_allclose(model.transition, np.diag([0.8, 0.2]), rtol=1e-14)
        np.testing.assert_allclose(model.values[:, 0], [2.0, 1.0], rtol=1e-14)


def test_relevance_has_mean_one_and_a_floor_and_follows_the_corrections():
    corrections = jnp.asarray(np.random.default_rng(0).normal(1, 2, 1000), jnp.float32)
    omega = np.asarray(relevance(corrections), np.float64)
    assert omega.mean() == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(omega[np.asarray(corrections) <= 0], FLOOR, rtol=1e-6)
    rising = omega[np.argsort(corrections)]
    assert (np.diff(rising) >= 0).all()
    assert rising[-1] > 3


def test_relevance_of_a_policy_that_the_logs_do_not_show_is_no_less_than_its_floor():
    np.testing.assert_allclose(relevance(-jnp.ones(5)), FLOOR, rtol=1e-6)


def gram_of(basis, inputs):
    phi = np.asarray(features(basis, jnp.asarray(inputs)), np.float64)
    return phi, phi.T @ phi / len(phi)


INPUTS = np.random.default_rng(0).normal(size=(2000, 4)).astype(np.float32) * np.float32([1, 1, 0.1, 3])


def test_the_basis_is_orthonormal_under_its_rows_and_begins_with_a_constant():
    basis = fit_basis(INPUTS, waves=32)
    phi, gram = gram_of(basis, INPUTS)
    assert 1 + 4 < phi.shape[1] <= 1 + 4 + 32
    assert (phi[:, 0] == 1).all()
    # float32 knows a feature to 1e-7, and whitening multiplies by up to 1e3 what has a small variance.
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-4)


def test_a_column_that_carries_nothing_is_left_out_of_the_basis():
    """A constant column and a copy of another add no direction, and every number is finite."""
    inputs = np.column_stack([INPUTS, np.full(len(INPUTS), 3.7, np.float32), INPUTS[:, 0]])
    phi, gram = gram_of(fit_basis(inputs, waves=32), inputs)
    assert 1 + 4 < phi.shape[1] <= 1 + 4 + 32
    assert np.isfinite(phi).all()
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-4)


@pytest.mark.parametrize("rows", [1, 7, 999])
def test_inputs_that_are_all_the_same_leave_the_constant_alone(rows):
    inputs = np.full((rows, 3), 0.3, np.float32)
    assert (gram_of(fit_basis(inputs, waves=8), inputs)[0] == np.ones((rows, 1))).all()


def test_the_same_seed_gives_the_same_basis():
    first, same, other = (fit_basis(INPUTS, 8, seed) for seed in (0, 0, 1))
    assert all((a == b).all() for a, b in zip(first, same, strict=True))
    assert not (first.frequencies == other.frequencies).all()


def test_roughness_is_nothing_for_the_constant_and_least_for_the_direction_of_most_variance():
    basis = fit_basis(INPUTS, waves=32)
    assert basis.roughness[0] == 0
    assert basis.roughness[1:].min() == 1
    raw_variances = 1 / np.square(np.asarray(basis.whitening, np.float64)).sum(0)
    np.testing.assert_allclose(basis.roughness[1:], raw_variances.max() / raw_variances, rtol=1e-5)


def test_a_projection_is_the_features_times_the_coefficients():
    generator = np.random.default_rng(1)
    with tabular.float64():
        basis = jax.tree.map(lambda array: jnp.asarray(array, jnp.float64), fit_basis(INPUTS, waves=32))
        inputs = jnp.asarray(generator.normal(size=(3, 7, 4)))
        phi = features(basis, inputs)
        coefficients = jnp.asarray(generator.normal(size=(phi.shape[-1], 5)))
        np.testing.assert_allclose(project(basis, inputs, coefficients), phi @ coefficients, rtol=1e-9, atol=1e-9)


def any_style(_, key, observation):
    """A driver of point-circle that takes a style at random at every step: what the logs do on average, nearly."""
    style_key, noise_key = jax.random.split(key)
    push = CIRCLE.controller(jax.random.uniform(style_key), observation)
    return jnp.clip(push + 0.3 * jax.random.normal(noise_key, (2,)), -1, 1)


def test_the_estimator_is_near_the_truth_on_a_task_for_a_policy_near_the_logs():
    """Within a tenth in cost and 3 % in return: with so few features it is 6 % and 1 % too low, by bias, not by noise.

    Four times the logs leave it so; a thousand waves bring the cost to 1 %, in a minute more.
    """
    logs = envs.collect(CIRCLE, 0, 200)
    evidence = ope.evidence_of(logs, units_of(logs, 0.99), CIRCLE.horizon, 0.99)
    act = jax.jit(jax.vmap(any_style, (None, 0, 0)))
    keys = iter(jax.random.split(jax.random.key(1)))
    question = ope.ask_function(evidence, lambda rows: act(None, jax.random.split(next(keys), len(rows)), rows), (4,))
    found = extraction.estimator(evidence, waves=(256,))(question._replace(act=None))  # by the logs alone
    truth = envs.evaluate(CIRCLE, any_style, None, jax.random.key(3), 500)
    assert truth.episode_cost_se < 0.01 * truth.episode_cost
    for unit in ("episode", "discounted"):
        sums = getattr(found, unit)
        assert sums.returned.value == pytest.approx(float(getattr(truth, f"{unit}_return")), rel=0.03)
        assert sums.cost.value == pytest.approx(float(getattr(truth, f"{unit}_cost")), rel=0.1)


def network_extraction(problem, steps, batch_size=None):
    """w(s) by A and μ, linear in one-hot states, so tables; on all rows at every step, or on batches drawn of them."""
    rows = problem.rows
    n = len(rows.s) if batch_size is None else batch_size
    config = algorithm1.Config(steps=steps, batch_size=n, widths=(), estimate="networks")
    hypers = Hypers(
        alpha=1.0,
        episode_limit=0.0,
        per_step_limit=0.0,
        episode_per_step=1.0,
        safe_rows=n,
        discount=DISCOUNT,
        learning_rate=0.02,
    )
    one_hot = jnp.eye(STATES)
    w = jnp.asarray(problem.policy_correction[rows.s, rows.a], jnp.float32)
    zeros = jnp.zeros(len(rows.s))
    terminals = jnp.asarray(rows.terminals, jnp.float32)
    logs = Batch(one_hot[rows.s], zeros, zeros, zeros, one_hot[rows.s_next], terminals)
    initial = jnp.tile(one_hot[0], (n, 1))
    params = {name: config.critic().init(jax.random.key(0), one_hot) for name in ("a", "mu")}
    params["constant"] = jnp.zeros(())

    def step(carry, step_and_key):
        params, optimiser = carry
        step, key = step_and_key
        index = jnp.arange(n) if batch_size is None else jax.random.randint(key, (n,), 0, len(rows.s))
        batch = jax.tree.map(lambda column: column[index], logs)

        def loss(params):
            terms, _ = algorithm1._extraction(config, hypers, params, batch, initial, w[index])
            return terms["a_loss"] + terms["mu_loss"]

        return descend(config, hypers, params, jax.grad(loss)(params), optimiser, step), None

    each = (jnp.arange(steps), jax.random.split(jax.random.key(1), steps))
    (params, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, each))((params, ADAM.init(params)))
    states = Batch(one_hot, *[jnp.zeros(STATES)] * 3, one_hot, jnp.zeros(STATES))
    six = algorithm1.Config(batch_size=STATES, widths=(), estimate="networks")
    return algorithm1._extraction(six, hypers, params, states, initial, jnp.ones(STATES))[1]


def exact_state_correction(problem):
    return exact_visits(problem).sum(-1) / problem.distribution.sum(-1)


@going_on_or_ending
def test_the_two_losses_of_the_paper_descend_to_the_exact_state_correction(ending):
    """On exact expectations: A and μ move together, by the algorithm's own optimiser, from zero."""
    problem = make_problem(ending)
    found = network_extraction(problem, steps=10_000)
    np.testing.assert_allclose(found, exact_state_correction(problem), atol=1e-3)


@going_on_or_ending
def test_the_two_losses_of_the_paper_find_the_state_correction_from_batches(ending):
    problem = make_problem(ending)
    found, exact = network_extraction(problem, steps=10_000, batch_size=256), exact_state_correction(problem)
    assert np.corrcoef(found, exact)[0, 1] > 0.99
    assert np.abs(found - exact).mean() < 0.05
    assert np.ptp(exact) > 10 * 0.05  # there is something to find
