"""The paper's propositions, as facts about the exact solutions."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import ALPHAS, BETAS, make_logs

from corsdice import losses, tabular
from corsdice.divergences import CHI2, DIVERGENCES, KL
from corsdice.tabular import Status
from corsdice.tabular.extraction import exact_mu_loss, extraction_dual_loss, regress_a
from corsdice.tabular.mdp import expected_next

every_divergence = pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=DIVERGENCES)
every_alpha = pytest.mark.parametrize("alpha", ALPHAS)


@every_divergence
@every_alpha
def test_proposition_4_1_semidice_is_a_policy_correction_and_breaks_the_flow(logs, divergence, alpha):
    solution = tabular.semidice(logs, alpha, divergence)
    np.testing.assert_allclose((solution.w * logs.behaviour).sum(-1), 1, atol=1e-9)
    assert solution.w.min() >= 0
    assert tabular.flow_violation(logs, solution.w) > (0.1 if alpha <= 0.1 else 1e-4)


@every_divergence
@every_alpha
def test_proposition_4_1_the_gradient_of_the_nu_loss_vanishes(logs, divergence, alpha):
    """With ν as the only variable and Q = r + γ E[ν(s')] held, the loss is stationary at the solution."""
    solution = tabular.semidice(logs, alpha, divergence)
    q = logs.mdp.rewards + logs.mdp.discount * expected_next(logs.mdp, solution.nu)

    def nu_loss(nu):
        inner = nu[:, None] + alpha * divergence.conjugate((q - nu[:, None]) / alpha)
        return (logs.distribution * inner).sum()

    # ν is off by the solver's residual δ, and a weight w by w' δ / α, where w' <= max(w, 1).
    off = (solution.residual + 1e-15) * (1 + jnp.abs(solution.nu).max()) / alpha * jnp.maximum(solution.w.max(), 1)
    np.testing.assert_allclose(jax.grad(nu_loss)(solution.nu), 0, atol=float(off))


@every_divergence
@pytest.mark.parametrize("alpha", [0.01, 0.1, 1.0])
def test_proposition_4_2_no_policy_beats_the_regularised_optimum(logs, divergence, alpha):
    """V* is the regularised value of π*, and random policies have less."""
    solution = tabular.behaviour_regularised(logs, alpha, divergence)
    assert solution.status == Status.CONVERGED

    def regularised_value(policy):
        penalty = (logs.behaviour * divergence.f(policy / logs.behaviour)).sum(-1)
        reward = (policy * logs.mdp.rewards).sum(-1) - alpha * penalty
        return tabular.mdp.solve_bellman(logs.mdp, policy, reward)

    np.testing.assert_allclose(regularised_value(solution.policy), solution.nu, atol=1e-8)
    for key in jax.random.split(jax.random.key(0), 20):
        other = jax.random.dirichlet(key, jnp.full(logs.mdp.actions, 0.5), (logs.mdp.states,))
        assert (regularised_value(other) <= solution.nu + 1e-9).all()


def test_semidice_approximates_the_regularised_optimum_except_for_kl(logs):
    """With f'(1) = 0, U = V for KL: XQL, SemiDICE and the exact optimum are one. For χ² they differ."""
    exact = tabular.behaviour_regularised(logs, 0.1, KL)
    for same in (tabular.semidice(logs, 0.1, KL), tabular.xql(logs, 0.1)):
        np.testing.assert_allclose(same.nu, exact.nu, atol=1e-9)
        np.testing.assert_allclose(same.w, exact.w, atol=1e-7)
    difference = tabular.semidice(logs, 0.1, CHI2).w - tabular.behaviour_regularised(logs, 0.1, CHI2).w
    assert jnp.abs(difference).max() > 1e-3


@every_alpha
def test_sql_is_semidice_with_chi2_at_twice_the_alpha(logs, alpha):
    sql = tabular.sql(logs, alpha)
    np.testing.assert_allclose(sql.w, tabular.semidice(logs, 2 * alpha, CHI2).w, atol=1e-9)
    q = logs.mdp.rewards + logs.mdp.discount * expected_next(logs.mdp, sql.nu)
    np.testing.assert_allclose(
        sql.w, jnp.maximum(0, 1 + (q - sql.nu[:, None]) / (2 * alpha)), atol=1e-14 / alpha + 1e-9
    )


@every_alpha
def test_xql_stays_finite_and_has_its_closed_form(logs, alpha):
    xql = tabular.xql(logs, alpha)
    assert xql.status == Status.CONVERGED
    assert all(bool(jnp.isfinite(part).all()) for part in xql)
    q = logs.mdp.rewards + logs.mdp.discount * expected_next(logs.mdp, xql.nu)
    value = alpha * jax.scipy.special.logsumexp(q / alpha, b=logs.behaviour, axis=-1)
    np.testing.assert_allclose(xql.nu, value, atol=1e-10)


@every_divergence
@pytest.mark.parametrize("beta", BETAS)
def test_f_dvl_is_a_policy_correction_times_its_ratio(logs, divergence, beta):
    solution = tabular.f_dvl(logs, beta, divergence)
    np.testing.assert_allclose((solution.w * logs.behaviour).sum(-1), (1 - beta) / beta, rtol=1e-9)
    assert (tabular.policy_violation(logs, solution.w) < 1e-9) == (beta == 0.5)


def test_an_affine_change_of_f_moves_nu_by_a_constant_and_nothing_else(logs):
    """Why f may be written with f'(1) = 0: the paper's f = x log x has w(y) = e^{y-1}."""
    paper_kl = replace(
        KL,
        name="paper-kl",
        f_prime=lambda x: KL.f_prime(x) + 1,
        weight=lambda y: KL.weight(y - 1),
        weight_prime=lambda y: KL.weight_prime(y - 1),
    )
    ours, paper = tabular.semidice(logs, 0.1, KL), tabular.semidice(logs, 0.1, paper_kl)
    np.testing.assert_allclose(paper.w, ours.w, atol=1e-8)
    np.testing.assert_allclose(ours.nu - paper.nu, 0.1 / (1 - logs.mdp.discount), atol=1e-9)


@every_divergence
@every_alpha
def test_corollary_semidice_leaves_no_state_without_an_action(divergence, alpha):
    rooms = tabular.four_rooms()
    logs = tabular.logged(rooms.mdp, tabular.mixed_behaviour(rooms.mdp))
    assert ((tabular.semidice(logs, alpha, divergence).w * logs.behaviour).sum(-1) > 0.99).all()


def test_optidice_does_leave_states_without_an_action():
    rooms = tabular.four_rooms()
    logs = tabular.logged(rooms.mdp, tabular.mixed_behaviour(rooms.mdp))
    solution = tabular.optidice(logs, 0.01)
    mass = (solution.w * logs.behaviour).sum(-1)
    assert solution.status == Status.CONVERGED
    assert (mass < 1e-8).sum() > 50
    assert not ((mass > 1e-8) & (mass < 1e-2)).any()  # empty or not, nothing in between
    assert mass[rooms.start] > 0.1
    assert logs.state_distribution[mass < 1e-8].sum() > 0.1  # and the logs are full of them


@every_divergence
@pytest.mark.parametrize("alpha", [1e-4, 1e-2, 1.0])
def test_extraction_is_one_whatever_f_and_whatever_the_way(logs, divergence, alpha):
    correction = tabular.semidice(logs, alpha).w
    exact = tabular.extraction(logs, correction)
    assert tabular.flow_violation(logs, exact.w) < 1e-12
    for solve in (tabular.extraction_dual, tabular.extraction_a_mu):
        other = solve(logs, correction, divergence)
        assert other.status == Status.CONVERGED
        np.testing.assert_allclose(other.w * logs.distribution, exact.w * logs.distribution, atol=1e-8)


def test_extraction_estimates_the_cost_and_the_return_and_semidice_does_not(logs):
    semi = tabular.semidice(logs, 0.01)
    extracted = tabular.extraction(logs, semi.w)
    for quantity in (logs.mdp.costs, logs.mdp.rewards):
        truth = tabular.expected(logs.mdp, semi.policy, quantity)
        assert logs.estimate(extracted.w, quantity) == pytest.approx(float(truth), abs=1e-12)
        assert abs(logs.estimate(semi.w, quantity) - truth) > 0.01 * truth
    assert logs.estimate(extracted.w, jnp.ones_like(logs.mdp.costs)) == pytest.approx(1)


@every_divergence
def test_proposition_5_1_the_gradients_are_equal(logs, divergence):
    """At any μ, with A at its regression, mu-loss and the dual have the same gradient; and A is what u-loss finds."""
    correction = tabular.semidice(logs, 0.05).w
    mdp = logs.mdp
    weights = logs.distribution[..., None] * mdp.probabilities
    for key in jax.random.split(jax.random.key(1), 5):
        mu = jax.random.normal(key, (mdp.states,))
        a = regress_a(logs, correction, mu)

        def a_loss(a, mu=mu):
            e_mu = losses.flow_error(mu[:, None, None], mu[mdp.successors], mdp.discount)
            return losses.extraction_a_loss(a[:, None, None], correction[..., None], e_mu, weights)

        np.testing.assert_allclose(jax.grad(a_loss)(a), 0, atol=1e-13)
        np.testing.assert_allclose(
            jax.grad(exact_mu_loss)(mu, a, logs, correction, divergence),
            jax.grad(extraction_dual_loss)(mu, logs, correction, divergence),
            rtol=1e-10,
            atol=1e-13,
        )


def test_the_losses_over_a_sample_approach_their_expectations(logs):
    """A batch of transitions, drawn from the model, gives the exact loss up to sampling error."""
    generator = np.random.default_rng(0)
    mdp = logs.mdp
    correction = tabular.semidice(logs, 0.05).w
    mu = jnp.asarray(generator.normal(size=mdp.states))
    a = regress_a(logs, correction, mu)
    chances = np.asarray(logs.distribution[..., None] * mdp.probabilities)
    index = generator.choice(chances.size, 400_000, p=chances.ravel() / chances.sum())
    state, action, place = np.unravel_index(index, chances.shape)
    e_mu = losses.flow_error(mu[state], mu[mdp.successors[state, action, place]], mdp.discount)
    start = jnp.asarray(generator.choice(mdp.states, 1000, p=np.asarray(mdp.initial)))
    sampled = losses.extraction_mu_loss(KL, a[state], correction[state, action], e_mu, mu[start], mdp.discount)
    terms = KL.weight(a[state]) * correction[state, action] * e_mu
    assert abs(sampled - exact_mu_loss(mu, a, logs, correction, KL)) < 5 * terms.std() / np.sqrt(len(index))


def test_batches_over_problems_and_parameters_equal_single_solves():
    problems = [make_logs(seed)[1] for seed in range(3)]
    stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *problems)
    alphas = jnp.array([0.001, 0.1])
    for solve in (tabular.semidice, tabular.optidice, tabular.xql):
        batch = jax.vmap(jax.vmap(solve, in_axes=(None, 0)), in_axes=(0, None))(stacked, alphas)
        for i, logs in enumerate(problems):
            for j, alpha in enumerate(alphas):
                np.testing.assert_allclose(batch.w[i, j], solve(logs, alpha).w, atol=1e-7)


def test_one_compilation_serves_every_parameter(logs):
    tabular.semidice(logs, 0.1)
    before = tabular.semidice._cache_size()
    for alpha in ALPHAS:
        tabular.semidice(logs, alpha)
    assert tabular.semidice._cache_size() == before
